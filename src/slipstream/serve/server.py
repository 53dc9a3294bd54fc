"""The server of compiled models: REST and gRPC until a signal ends it."""

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
from slipstream.infer.engines.gpu.cards import parse_device
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

_HTTP = "slipstream.serve.protocol.http:Protocol"  # uvicorn's class with bodies read in place
_BACKLOG = 2048  # connections that may wait to be accepted; uvicorn's default
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_NOTICE = 5.0  # seconds; Kubernetes informs its proxies within two or three seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of a server.

    Args:
        models: Versions of the models to serve.
        host: Address to listen on (default 127.0.0.1, which only this machine reaches).
        port: TCP port of REST (default 8000); 0 chooses a free port.
        grpc_port: TCP port of gRPC (default 8001); 0 chooses a free port, and None turns gRPC off.
        replicas: Number of processes that execute the models (default 1, which is the server's own
            process).
        devices: Devices of the processes that execute the models: "cpu", "cuda" or "cuda:1", or
            "auto" (the default) for the CPU or the first GPU, as each model was compiled. There
            are at least as many processes as devices, which take turns.
        threads: Number of threads of a run if no other request for the model is open; None (the
            default) keeps the number that each model was compiled for.
        seconds: Time limit of a request in seconds (default 10); the request itself may set a
            shorter limit.
        delay: Longest time in seconds that a request waits for other requests to join its batch
            (default 0.002).
        waiting: Largest number of requests that may wait for one model (default 1024).
        most_rows: Largest number of rows of a request (default 64).
        body: Largest size of a request's body in bytes (default 64 MiB).
        bodies: Largest size of all bodies in memory together, in bytes (default 512 MiB).
        watch: Period in seconds at which the model files are checked (default 1); a changed file is
            loaded again. None turns the check of the model files off.
        tokens: Accepted tokens, one of which a request must present (default none: every request is
            served).
        tls: Certificate and key of the server; None (the default) turns encryption off.
        access_log: File that receives a line of JSON for each request; None (the default) turns the
            log off.
        notice: Time in seconds after SIGTERM during which `/v2/health/ready` answers 503 while
            requests are still served, so that load balancers can send new requests elsewhere.
            During the notice, each connection is closed after its next answer. A second signal or
            SIGINT ends the notice at once. A notice of None (the default) means 5 s if other
            machines can reach `host`, and otherwise 0.
        drain: Time in seconds after the notice during which open requests are still answered
            (default 30).
        keep_alive: Time in seconds after which a connection without requests is closed, 1 or more
            (default 75). Proxies reuse a connection for up to 60 s, and must not find the
            connection closed.
    """

    models: Sequence[ModelSpec]
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = 8001
    replicas: int = 1
    devices: tuple[str, ...] = ("auto",)
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

    def __post_init__(self) -> None:
        """Raise UsageError for a device that is unknown."""
        if not self.devices:
            raise UsageError("devices is empty; allowed: one device or more, such as cuda:0")
        for device in self.devices:
            parse_device(device)


@dataclass(frozen=True, slots=True)
class ListenAddresses:
    """The addresses at which a server listens.

    Args:
        rest: Address of REST, "host:port".
        grpc: Address of gRPC, "host:port"; None if gRPC is off.
    """

    rest: str
    grpc: str | None


@dataclass(slots=True)
class Server:
    """A server that answers requests for models over REST and gRPC.

    Args:
        options: Models and settings of the server.
        on_ready: Function that is called with the server's addresses once all models are ready.
    """

    options: ServeOptions
    on_ready: Callable[[ListenAddresses], None] = lambda _: None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _hurried: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `end`; return once the open requests are answered.

        Raises UsageError or UnsupportedError if a model cannot be served, and OSError if the server
        cannot listen on an address.
        """
        options = self.options
        limits = BatcherLimits(runs=1, waiting=options.waiting, delay=options.delay)
        count, devices = max(options.replicas, len(options.devices)), options.devices
        replicas = (
            WorkerPool(count, options.threads, devices)
            if count > 1
            else InProcess(options.threads, devices[0])
        )
        repository = Repository(options.models, replicas, limits, options.most_rows)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.end)
        loop.add_signal_handler(signal.SIGINT, self.end, 0.0)
        try:
            await asyncio.gather(
                *(repository.load(model.name, model.version) for model in options.models)
            )
            await self._serve(repository)
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
            await repository.close()

    def end(self, notice: float | None = None) -> None:
        """End the server after the time `notice` that its options state.

        Call `end` from the event loop.

        A second call, or a call with `notice=0`, ends the server at once.
        """
        if notice == 0 or self._ended.is_set():
            self._hurried.set()
        self._ended.set()

    async def _serve(self, repository: Repository) -> None:
        if self.options.watch is None:
            await self._listen(repository)
            return
        watch = asyncio.create_task(ModelWatcher(repository, self.options.watch).run())
        try:
            await self._listen(repository)
        finally:
            watch.cancel()

    async def _listen(self, repository: Repository) -> None:
        options, own_version = self.options, version("slipstream")
        metrics, history = Metrics(repository), History()
        logs = [
            metrics.add,
            history.add,
            *([log_to(options.access_log)] if options.access_log else []),
        ]
        handler = RequestHandler(repository, options.seconds, logs)
        rest = RestApi(
            handler, BodyMemory(options.body, options.bodies), metrics, options.tokens, own_version
        )
        rest.others.routes.extend(page_routes(repository, history))
        config = uvicorn.Config(
            rest, http=_HTTP, ws="none", lifespan="off", proxy_headers=False,
            ssl_certfile=None if options.tls is None else options.tls.certificate,
            ssl_keyfile=None if options.tls is None else options.tls.key,
            log_config=None, access_log=False, timeout_graceful_shutdown=int(options.drain),
            server_header=False, timeout_keep_alive=options.keep_alive,
        )  # fmt: skip
        web = _Uvicorn(config)
        sockets = [listening(options.host, options.port)]
        try:
            remote = await self._grpc(GrpcService(handler, options.tokens, own_version))
        except OSError:
            sockets[0].close()
            raise
        serving = asyncio.create_task(web.serve(sockets))
        try:
            # The objects that exist now stay until the end, so the garbage collector need not visit
            # them while requests wait.
            gc.freeze()
            host, port = sockets[0].getsockname()[:2]
            self.on_ready(
                ListenAddresses(f"{host}:{port}", None if remote is None else f"{host}:{remote[1]}")
            )
            await self._ended.wait()
            await self._give_notice(repository)
        finally:
            web.should_exit = True
            if remote is not None:
                await remote[0].stop(options.drain)
            await serving

    async def _give_notice(self, repository: Repository) -> None:
        """Report that the server is not ready, and wait for the time `notice` of its options."""
        notice = self.options.notice
        if notice is None:
            notice = 0.0 if is_loopback(self.options.host) else _NOTICE
        repository.is_ending = True
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), notice)

    async def _grpc(self, service: GrpcService) -> tuple[grpc.aio.Server, int] | None:
        options = self.options
        if options.grpc_port is None:
            return None
        channel = [("grpc.max_receive_message_length", options.body), ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(options=channel)
        server.add_generic_rpc_handlers((service.handler(),))
        listening(
            options.host, options.grpc_port
        ).close()  # raises an error with the reason, which gRPC does not report
        address = f"{options.host}:{options.grpc_port}"
        if options.tls is None:
            port = server.add_insecure_port(address)
        else:
            pair = options.tls.key.read_bytes(), options.tls.certificate.read_bytes()
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        await server.start()
        return server, port


def run(
    *models: str | Path,
    on_ready: Callable[[ListenAddresses], None] = lambda _: None,
    **options: Any,
) -> None:
    """Serve compiled models until SIGTERM or Ctrl-C; blocks. Call `run` from the main thread.

    serve.run("model.slip", "resnet=other.slip@10%", port=9000)

    Args:
        models: Packages to serve: "file.slip", "name=file.slip", or "name=file.slip@10%" for a
            version that receives this share of the requests that name no version.
        on_ready: Function that is called with the server's addresses once all models are ready.
        options: Fields of `ServeOptions`, such as `port`, `replicas` or `seconds`.

    Raises UsageError or UnsupportedError if a model or an option is not allowed, and OSError if the
    server cannot listen on an address.
    """
    allowed = [each.name for each in fields(ServeOptions) if each.name != "models"]
    unknown = sorted(options.keys() - set(allowed))
    if unknown or not models:
        problem = f"there is no option {unknown[0]!r}" if unknown else "no model is named"
        raise UsageError(f"{problem}; options are {', '.join(allowed)}")
    specs = parse_model_specs([str(model) for model in models])
    uvloop.run(Server(ServeOptions(models=specs, **options), on_ready).run())


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket with the protocol number of TCP.

    With protocol number 0, asyncio does not turn Nagle's algorithm off. As a result, a response in
    two pieces would wait 40 ms until the client acknowledges the first piece.

    Args:
        host: Name or address to listen on.
        port: TCP port; 0 for any free port.

    Raises:
        OSError: the address cannot be listened on; the message names it.
    """
    with ExitStack() as unless_listening:
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            found = unless_listening.enter_context(socket.socket(family, kind, socket.IPPROTO_TCP))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            # A client that learns the address may connect at once.
            found.listen(_BACKLOG)
        except OSError as error:
            words = f"{host}:{port} cannot be listened on: {error.strerror};"
            words += " choose another address or port"
            raise OSError(error.errno, words) from error
        unless_listening.pop_all()
    return found


class _Uvicorn(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to `Server`."""
        yield
