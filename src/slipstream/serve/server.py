"""Serves models over REST and gRPC until it is told to end, and then answers what it has."""

# grpcio has few types.
# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import grpc
import uvicorn
import uvloop

from slipstream.errors import UsageError
from slipstream.serve.access import Tls, Tokens, is_loopback
from slipstream.serve.batcher import BatcherLimits
from slipstream.serve.grpc_service import GrpcService
from slipstream.serve.handler import RequestHandler
from slipstream.serve.metrics import Metrics
from slipstream.serve.page import History, page_routes
from slipstream.serve.protocol.bodies import BodyMemory
from slipstream.serve.record import log_to
from slipstream.serve.replicas import InProcess
from slipstream.serve.repository import ModelSpec, Repository, parse_model_specs
from slipstream.serve.rest import RestApi
from slipstream.serve.watcher import ModelWatcher
from slipstream.serve.worker_pool import WorkerPool

_HTTP = "slipstream.serve.protocol.http:Protocol"  # uvicorn's own, with bodies in place
_BACKLOG = 2048  # connections that wait to be accepted
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_NOTICE = 5.0  # seconds: Kubernetes tells its proxies within two or three


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What is served, and how.

    Args:
        models: and their versions.
        host: address to listen on; others than this machine reach all but the default.
        port: of REST; 0: any that is free.
        grpc_port: of gRPC; 0: any that is free; None: none.
        replicas: processes that run the models; 1: this one does.
        threads: of a run that is alone; None: those that each model was compiled for.
        seconds: that a request may take, if it does not say less.
        delay: seconds that a request may wait for others to share its run.
        waiting: requests of a model that may wait.
        most_rows: of a request.
        body: bytes of a request.
        bodies: bytes of all requests that are held at a time.
        watch: seconds between looks at the files of models, which are loaded again if they have
            changed; None: never.
        tokens: that let requests in.
        tls: None: what is said is not hidden.
        access_log: where a line of JSON is written for each request; None: nowhere.
        notice: seconds after SIGTERM in which `/v2/health/ready` says 503 and requests are still
            taken, the last of each connection: whoever balances the load goes elsewhere meanwhile.
            A second signal ends them, and SIGINT waits for none. None: 5 where others than this
            machine reach the host, else 0.
        drain: seconds that requests have after that to be answered.
        keep_alive: seconds that a connection without a request stays open, 1 or more. Proxies keep
            theirs for up to 60 s, and must not find one closed.
    """

    models: Sequence[ModelSpec]
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = 8001
    replicas: int = 1
    threads: int | None = None
    seconds: float = 10.0
    delay: float = 0.002
    waiting: int = 1024
    most_rows: int = 64
    body: int = 64 << 20
    bodies: int = 512 << 20
    watch: float | None = 1.0
    tokens: Tokens = field(default_factory=Tokens)
    tls: Tls | None = None
    access_log: TextIO | None = None
    notice: float | None = None
    drain: float = 30.0
    keep_alive: int = 75


@dataclass(frozen=True, slots=True)
class ListenAddresses:
    """Where a server listens.

    Args:
        rest: "host:port".
        grpc: "host:port"; None: there is none.
    """

    rest: str
    grpc: str | None


@dataclass(slots=True)
class Server:
    """Models behind an endpoint.

    Args:
        spec: what is served.
        told: told where it listens, once all models are ready.
    """

    spec: ServeOptions
    told: Callable[[ListenAddresses], None] = lambda _: None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _hurried: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT, or `end`. Requests that it has are answered first.

        Raises UsageError or UnsupportedError for a model that cannot be served, and OSError for an
        address that cannot be listened on.
        """
        spec = self.spec
        limits = BatcherLimits(runs=1, waiting=spec.waiting, delay=spec.delay)
        several = spec.replicas > 1
        replicas = WorkerPool(spec.replicas, spec.threads) if several else InProcess(spec.threads)
        repository = Repository(spec.models, replicas, limits, spec.most_rows)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.end)
        loop.add_signal_handler(signal.SIGINT, self.end, 0.0)
        try:
            await asyncio.gather(
                *(repository.load(each.name, each.version) for each in spec.models)
            )
            await self._serve(repository)
        finally:
            for each in _SIGNALS:
                loop.remove_signal_handler(each)
            await repository.close()

    def end(self, notice: float | None = None) -> None:
        """End the server after the notice of its options. Call it from the server's event loop.

        A second call, or a notice of 0, ends it at once.
        """
        if notice == 0 or self._ended.is_set():
            self._hurried.set()
        self._ended.set()

    async def _serve(self, repository: Repository) -> None:
        if self.spec.watch is None:
            await self._listen(repository)
            return
        watch = asyncio.create_task(ModelWatcher(repository, self.spec.watch).run())
        try:
            await self._listen(repository)
        finally:
            watch.cancel()

    async def _listen(self, repository: Repository) -> None:
        spec, own = self.spec, version("slipstream")
        metrics, history = Metrics(repository), History()
        logs = [metrics.add, history.add, *([log_to(spec.access_log)] if spec.access_log else [])]
        handler = RequestHandler(repository, spec.seconds, logs)
        rest = RestApi(handler, BodyMemory(spec.body, spec.bodies), metrics, spec.tokens, own)
        rest.others.routes.extend(page_routes(repository, history))
        config = uvicorn.Config(
            rest, http=_HTTP, ws="none", lifespan="off", proxy_headers=False,
            ssl_certfile=None if spec.tls is None else spec.tls.certificate,
            ssl_keyfile=None if spec.tls is None else spec.tls.key,
            log_config=None, access_log=False, timeout_graceful_shutdown=int(spec.drain),
            server_header=False, timeout_keep_alive=spec.keep_alive,
        )  # fmt: skip
        web = _Uvicorn(config)
        sockets = [_listening(spec.host, spec.port)]
        try:
            remote = await self._grpc(GrpcService(handler, spec.tokens, own))
        except OSError:
            sockets[0].close()
            raise
        serving = asyncio.create_task(web.serve(sockets))
        try:
            # What is there now stays: no request is to wait while all of it is looked through.
            gc.freeze()
            host, port = sockets[0].getsockname()[:2]
            self.told(
                ListenAddresses(f"{host}:{port}", None if remote is None else f"{host}:{remote[1]}")
            )
            await self._ended.wait()
            await self._give_notice(repository)
        finally:
            web.should_exit = True
            if remote is not None:
                await remote[0].stop(spec.drain)
            await serving

    async def _give_notice(self, repository: Repository) -> None:
        """Returns once who balances the load may know that this server is going away."""
        notice = self.spec.notice
        if notice is None:
            notice = 0.0 if is_loopback(self.spec.host) else _NOTICE
        repository.is_ending = True
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), notice)

    async def _grpc(self, service: GrpcService) -> tuple[grpc.aio.Server, int] | None:
        spec = self.spec
        if spec.grpc_port is None:
            return None
        options = [("grpc.max_receive_message_length", spec.body), ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((service.handler(),))
        _listening(spec.host, spec.grpc_port).close()  # gRPC does not say why it cannot
        address = f"{spec.host}:{spec.grpc_port}"
        if spec.tls is None:
            port = server.add_insecure_port(address)
        else:
            pair = spec.tls.key.read_bytes(), spec.tls.certificate.read_bytes()
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        await server.start()
        return server, port


def run(
    *models: str | Path, told: Callable[[ListenAddresses], None] = lambda _: None, **options: Any
) -> None:
    """Serves compiled models until SIGTERM or Ctrl-C; blocks. Call it from the main thread.

    serve.run("model.slip", "resnet=other.slip@10%", port=9000)

    Args:
        models: packages: "file.slip", "name=file.slip", or "name=file.slip@10%" for a version that
            gets a share of the requests that name none.
        told: told where it listens, once all models are ready.
        options: of `ServeOptions`, as `port`, `replicas`, `seconds`.

    Raises UsageError or UnsupportedError for a model or option that cannot be served, and OSError
    for an address that cannot be listened on.
    """
    allowed = [each.name for each in fields(ServeOptions) if each.name != "models"]
    strange = sorted(options.keys() - set(allowed))
    if strange or not models:
        what = f"there is no option {strange[0]!r}" if strange else "no model is named"
        raise UsageError(f"{what}; options are {', '.join(allowed)}")
    spec = ServeOptions(models=parse_model_specs([str(each) for each in models]), **options)
    uvloop.run(Server(spec, told).run())


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is known to be TCP: else asyncio leaves Nagle's algorithm on, and a response
    of two pieces waits 40 ms for the client to acknowledge the first."""
    with ExitStack() as unless_listening:
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            found = unless_listening.enter_context(socket.socket(family, kind, socket.IPPROTO_TCP))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            # Who is told where it listens may connect at once.
            found.listen(_BACKLOG)
        except OSError as error:
            words = f"{host}:{port} cannot be listened on: {error.strerror}"
            raise OSError(error.errno, words) from error
        unless_listening.pop_all()
    return found


class _Uvicorn(uvicorn.Server):
    """uvicorn, without signal handlers of its own."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Does nothing: the server above has them."""
        yield
