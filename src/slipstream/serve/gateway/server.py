"""The gateway: one address in front of the replicas, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from slipstream.errors import UsageError
from slipstream.serve.access import Tls, Tokens, is_loopback
from slipstream.serve.gateway.dispatcher import Dispatcher, DispatchLimits
from slipstream.serve.gateway.downstream import (
    ClientConnection,
    ClientRequest,
    Reception,
    json_answer,
    refusal,
)
from slipstream.serve.gateway.fleet import Fleet, FleetLimits
from slipstream.serve.gateway.generations import ModelFiles
from slipstream.serve.gateway.grpc_passage import GrpcPassage, start_grpc
from slipstream.serve.gateway.http_exchange import HttpExchange
from slipstream.serve.gateway.replica_server import ReplicaState
from slipstream.serve.gateway.report import AnsweredRequest, GatewayReport
from slipstream.serve.gateway.scaling import Autoscaler, LoadSample, ScalingRules
from slipstream.serve.gateway.starters import ReplicaStarter
from slipstream.serve.gateway.upstream import ReplicaAnswer
from slipstream.serve.metrics import CONTENT_TYPE
from slipstream.serve.page import OPEN_PATHS
from slipstream.serve.protocol.bodies import BodyMemory
from slipstream.serve.refusals import RequestRefusedError
from slipstream.serve.repository import ModelSpec
from slipstream.serve.server import ListenAddresses, listening

_DECISION_SECONDS = 0.25  # time between two decisions about the number of replicas
_SWEEP_SECONDS = 5.0  # time between two searches for connections that send nothing
_NOTICE = 5.0  # seconds, as for one server
_HEALTH = b"/v2/health/"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The options of a gateway.

    Args:
        models: Versions of the models to serve.
        starter: Object that starts replicas.
        rules: Limits and targets of the number of replicas.
        host: Address to listen on (default 127.0.0.1, which only this machine reaches).
        port: TCP port of REST (default 8000); 0 chooses a free port.
        grpc_port: TCP port of gRPC; 0 chooses a free port, and None (the default) turns gRPC off.
        limits: Limits of the requests.
        fleet: Time limits of the replicas.
        attempts: Number of starts that may fail before the first replica is ready (default 1).
        body: Largest size of a request's body in bytes (default 64 MiB).
        bodies: Largest size of all bodies in memory together, in bytes (default 512 MiB).
        watch: Period in seconds at which the model files are checked (default 1); None for never.
        tokens: Accepted tokens (default none: every request is served).
        tls: Certificate and key of the gateway; None (the default) turns encryption off.
        access_log: File that receives a line of JSON for each request; None (the default) for none.
        notice: Time in seconds after SIGTERM during which the gateway reports that it is not ready;
            None (the default) means 5 s if other machines can reach `host`, and otherwise 0.
        drain: Time in seconds after the notice for the open requests (default 30).
        keep_alive: Time in seconds after which a connection without requests ends (default 75).
        tell: Function that is called with one line about each event (default: nothing is told).
    """

    models: Sequence[ModelSpec]
    starter: ReplicaStarter
    rules: ScalingRules
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    limits: DispatchLimits = field(default_factory=DispatchLimits)
    fleet: FleetLimits = field(default_factory=FleetLimits)
    attempts: int = 1
    body: int = 64 << 20
    bodies: int = 512 << 20
    watch: float | None = 1.0
    tokens: Tokens = field(default_factory=Tokens)
    tls: Tls | None = None
    access_log: TextIO | None = None
    notice: float | None = None
    drain: float = 30.0
    keep_alive: float = 75.0
    tell: Callable[[str], None] = lambda _: None


class Gateway:
    """A gateway.

    Args:
        options: Models and settings.
        on_ready: Function that is called with the addresses when a replica is ready.
    """

    def __init__(
        self, options: GatewayOptions, on_ready: Callable[[ListenAddresses], None] = lambda _: None
    ) -> None:
        self._options, self._on_ready = options, on_ready
        self._ended, self._hurried = asyncio.Event(), asyncio.Event()
        self._dispatcher = Dispatcher(options.limits, self._explain, self._count_retry)
        self._report = GatewayReport(self._dispatcher, options.access_log)
        self._reception = Reception(
            self._admit, self._respond, BodyMemory(options.body, options.bodies)
        )
        self._scaler = Autoscaler(options.rules, max(options.rules.min, 1))
        self._last_request = time.monotonic()
        self._fleet: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        """Replicas of the gateway, which runs."""
        assert self._fleet is not None, "the gateway does not run"
        return self._fleet

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `end`; return once the open requests are answered.

        Raises:
            UsageError: no replica can serve the models.
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.end)
        loop.add_signal_handler(signal.SIGINT, self.end, 0.0)
        try:
            with tempfile.TemporaryDirectory(prefix="slipstream-gateway-") as folder:
                await self._run(ModelFiles(self._options.models, Path(folder)))
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def end(self, notice: float | None = None) -> None:
        """End the gateway after the notice of its options; a second call ends it at once.

        Args:
            notice: Time in seconds of the notice, 0 for none; None (the default) for that of the
                options.
        """
        if notice == 0 or self._ended.is_set():
            self._hurried.set()
        self._ended.set()

    async def _run(self, files: ModelFiles) -> None:
        options = self._options
        generation = await asyncio.to_thread(files.take)
        self._fleet = fleet = Fleet(
            options.starter, self._dispatcher, generation, options.fleet, self._tell
        )
        fleet.target = self._scaler.target
        door = listening(options.host, options.port)
        tasks = [asyncio.create_task(fleet.run())]
        try:
            await self._first_replica(tasks[0])
            tasks += [asyncio.create_task(self._scale()), asyncio.create_task(self._sweep())]
            if options.watch is not None:
                tasks.append(asyncio.create_task(self._watch(files, options.watch)))
            await self._listen(door)
        finally:
            door.close()
            for task in tasks:
                task.cancel()
            await fleet.close()

    async def _first_replica(self, fleet_task: asyncio.Task[None]) -> None:
        """Wait for the first replica, so that models that cannot be served end the command."""
        while not self.fleet.count(ReplicaState.READY) and not self._ended.is_set():
            if self.fleet.failures >= self._options.attempts:
                raise UsageError(f"no replica starts: {self.fleet.problem}")
            if fleet_task.done():
                fleet_task.result()
            await asyncio.sleep(0.02)
        self._last_request = time.monotonic()

    async def _listen(self, door: socket.socket) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        remote = await self._start_grpc()
        server = await loop.create_server(
            partial(ClientConnection, self._reception), sock=door, ssl=_server_context(options.tls)
        )
        # The objects that exist now stay until the end, so they need no visits.
        gc.freeze()
        host, port = door.getsockname()[:2]
        self._on_ready(
            ListenAddresses(f"{host}:{port}", None if remote is None else f"{host}:{remote[1]}")
        )
        await self._ended.wait()
        self._reception.is_ending = True
        notice = options.notice
        if notice is None:
            notice = 0.0 if is_loopback(options.host) else _NOTICE
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), notice)
        server.close()
        ends = [self._drain(), *([] if remote is None else [remote[0].stop(options.drain)])]
        await asyncio.gather(*ends)

    async def _start_grpc(self) -> tuple[Any, int] | None:
        options = self._options
        if options.grpc_port is None:
            return None

        def answered(request: AnsweredRequest) -> None:
            self._last_request = time.monotonic()
            self._report.answered(request)

        passage = GrpcPassage(self._dispatcher, options.tokens, self._is_ready, answered)
        return await start_grpc(passage, options.host, options.grpc_port, options.tls, options.body)

    async def _drain(self) -> None:
        """Answer the open requests, and close all connections."""
        end = time.monotonic() + self._options.drain
        while self._reception.connections and time.monotonic() < end:
            self._reception.sweep(0.0, self._options.limits.seconds)
            await asyncio.sleep(0.02)
        for connection in tuple(self._reception.connections):
            connection.close()

    # ---- requests ----

    def _admit(self, request: ClientRequest) -> None:
        path = request.target.partition(b"?")[0]
        if not path.startswith(_HEALTH) and path.decode("latin-1") not in OPEN_PATHS:
            self._options.tokens.check(request.field(b"authorization"))

    async def _respond(self, request: ClientRequest) -> ReplicaAnswer:
        answer = self._own_answer(request)
        if answer is None:
            self._last_request = time.monotonic()
            try:
                answer = await self._dispatcher.answer(HttpExchange(request))
            except RequestRefusedError as error:
                answer = refusal(error)
            self._report.answered(
                AnsweredRequest(
                    protocol="rest", path=request.target.decode("latin-1"),
                    status=str(answer.status), num_bytes=request.num_bytes,
                    seconds=asyncio.get_running_loop().time() - request.begin,
                    replica=answer.replica,
                )
            )  # fmt: skip
        return answer

    def _own_answer(self, request: ClientRequest) -> ReplicaAnswer | None:
        """Return the answer to a question about the gateway; None for all other requests."""
        path = request.target.partition(b"?")[0]
        if path == b"/v2/health/live":
            return ReplicaAnswer(200, [])
        if path == b"/v2/health/ready":
            return ReplicaAnswer(200 if self._is_ready() else 503, [])
        if path == b"/metrics":
            fields = [(b"content-type", CONTENT_TYPE.encode())]
            return ReplicaAnswer(200, fields, [self._report.metrics()])
        if path == b"/replicas":
            return json_answer(200, self._report.status(self.fleet, self._scaler))
        return None

    def _is_ready(self) -> bool:
        """Return whether a request would be answered, if need be after the start of a replica."""
        return not self._reception.is_ending and (
            self.fleet.count(ReplicaState.READY) > 0 or self._scaler.target == 0
        )

    def _explain(self) -> tuple[str, float]:
        """Return why no replica is free, and the seconds after which one may be."""
        ready = self.fleet.count(ReplicaState.READY)
        starting = self.fleet.count(ReplicaState.STARTING)
        if starting:
            return f"{ready} replicas are busy, and {starting} more are starting", 5.0
        if not ready:
            return f"no replica is ready; {self.fleet.problem or 'one is being started'}", 5.0
        most = " (the most allowed)" if ready >= self._options.rules.max else ""
        return f"all {ready} replicas{most} are busy", 1.0

    def _count_retry(self, reason: str) -> None:
        self._report.retried(reason)
        self.fleet.change()

    def _tell(self, words: str) -> None:
        self._report.event(words)
        self._options.tell(words)

    # ---- what runs beside the requests ----

    async def _scale(self) -> None:
        """Decide how many replicas there should be, again and again."""
        wanted, rules = self._dispatcher.wanted, self._options.rules
        while True:
            decision = self._scaler.decide(
                LoadSample(
                    time=time.monotonic(),
                    open=self._dispatcher.open,
                    last_request=self._last_request,
                    ready=self.fleet.count(ReplicaState.READY),
                    latency=self._report.latency(0.99) if rules.target_latency else None,
                )
            )
            if decision is not None:
                self._report.decided(decision)
                self._options.tell(
                    f"{decision.before} -> {decision.target} replicas: {decision.reason}"
                )
                self.fleet.target = decision.target
                self.fleet.change()
            wanted.clear()
            if self._scaler.target:
                await asyncio.sleep(_DECISION_SECONDS)
                continue
            # A request that finds no replica at all need not wait for the next look.
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(wanted.wait(), _DECISION_SECONDS)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._reception.sweep(self._options.keep_alive, self._options.limits.seconds)

    async def _watch(self, files: ModelFiles, period: float) -> None:
        while True:
            await asyncio.sleep(period)
            await asyncio.to_thread(files.discard, self.fleet.generations())
            if await asyncio.to_thread(files.have_changed):
                try:
                    generation = await asyncio.to_thread(files.take)
                except UsageError as error:
                    self._tell(str(error))
                else:
                    self.fleet.update(generation)


def _server_context(tls: Tls | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    return context
