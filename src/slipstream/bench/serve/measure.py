"""Our server beside a peer's: throughput, latency, serving overhead and overload.

    report = measure(ServeSpec(package=Path("model.slip"), onnx=Path("model.onnx")))

Servers and clients have processes of their own and share the machine's cores; contenders have their
turns in one run. Nothing else should run on the machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from slipstream.bench.infer.processes import ProcessError, run_to_end
from slipstream.bench.serve.clients import Load, ServeTurn
from slipstream.bench.serve.results import OK, OURS, Overload, Point, Reached, ServeReport
from slipstream.bench.serve.wire import MODEL, PATH, body_of, request_of, tensors_of
from slipstream.errors import UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.machine import usable_cores
from slipstream.infer.package.package import Package, read
from slipstream.serve.protocol.messages import JSON_LENGTH

PEERS = ("fastapi", "none")
ONNX_RUNTIME = ("onnxruntime", "fp32")  # engine and precision of an ONNX file as it is
SURE_DB = 10.0  # of a contender's outputs beside the package's: below that it is another model

_END_SECONDS = 40.0
_LAST_LINES = 5
_LOOK_SECONDS = 0.01

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeSpec:
    """Settings of a measurement.

    Args:
        package: file of `slipstream compile`.
        onnx: file of the same model, which the peer runs by ONNX Runtime; None: it runs the package
            by the same engine.
        clients: Numbers of clients of closed loops, each at least 1. One client shows the overhead
            of serving.
        rounds: Number of rounds, at least 1; every contender has one turn with each number of
            clients.
        seconds: Seconds of a turn of a closed loop.
        threads: Threads of a run by every contender; None for the number that the package was
            compiled for.
        overload: requests of the open loop, in times of the contender's capacity; 0: there is none.
        overload_seconds: Seconds of the open loop.
        deadline: Deadline of a request of the open loop, in seconds.
        peer: one of `PEERS`.
    """

    package: Path
    onnx: Path | None = None
    clients: tuple[int, ...] = (1, 2, 4, 8, 16)
    rounds: int = 5
    seconds: float = 5.0
    threads: int | None = None
    overload: float = 2.0
    overload_seconds: float = 60.0
    deadline: float = 0.1
    peer: str = "fastapi"

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        if self.peer not in PEERS:
            raise UsageError(f"the peer is {self.peer!r}; allowed: {', '.join(PEERS)}")
        if self.onnx is not None and self.peer == "none":
            raise UsageError("--onnx is a file for a peer, and there is none")
        if self.onnx is not None and not self.onnx.is_file():
            raise UsageError(f"there is no file {self.onnx}")
        if not self.clients or min(self.clients) < 1:
            raise UsageError(f"the clients are {self.clients}; allowed: numbers of 1 and more")
        if self.rounds < 1 or (self.threads is not None and self.threads < 1):
            raise UsageError(
                f"rounds is {self.rounds}, threads {self.threads}; allowed: 1 and more"
            )
        if min(self.seconds, self.overload_seconds, self.deadline) <= 0 or self.overload < 0:
            raise UsageError(
                f"seconds is {self.seconds}, of the open loop {self.overload_seconds}, the deadline"
                f" {self.deadline}, the overload {self.overload}; allowed: more than 0, of the"
                " overload also 0"
            )


def measure(spec: ServeSpec, tell: Tell = lambda text: None) -> ServeReport:
    """Run the measurement, and block for some minutes.

    Args:
        spec: Settings of the measurement.
        tell: is told what is done next.

    Raises UsageError for a package that cannot be read, and ProcessError where a server or clients
    failed, or a peer that runs another model.
    """
    package = read(spec.package)
    threads = spec.threads or min(package.manifest.threads, usable_cores())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        files = _Files(Path(folder), package, spec.deadline)
        servers: dict[str, ServerProcess] = {}
        for name, command in _commands(spec, threads).items():
            tell(f"{name} starts")
            servers[name] = stack.enter_context(started(name, command))
        return _ServerTrial(spec, package, threads, files, servers, tell).report()


class ServerProcess:
    """A server in a process of its own; see `started`.

    Args:
        process: Running process.
        url: Address of the server.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process, self.url = process, url

    @property
    def pid(self) -> int:
        """Id of its process."""
        return self._process.pid


@contextmanager
def started(name: str, command: Sequence[str]) -> Generator[ServerProcess]:
    """Start a server, wait until it listens, and end it afterwards.

    Args:
        name: Name of the contender.
        command: Command that prints "REST" and an address once it listens.

    Raises ProcessError with its last lines, where it failed.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("REST"):
                process.wait(_END_SECONDS)
                log.seek(0)
                said = " / ".join(log.read().splitlines()[-_LAST_LINES:])
                raise ProcessError(f"{name} did not start: {line.strip()} {said}")
            url = line.split()[1].removesuffix("/v2")
            _wait_for(url)
            yield ServerProcess(process, url)
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


class _Files:
    """Requests as clients send them.

    Args:
        folder: Folder of the files.
        package: Package whose example is sent.
        deadline: Deadline of the requests of the open loop.
    """

    def __init__(self, folder: Path, package: Package, deadline: float) -> None:
        inputs = package.check.inputs
        self.closed, self.open = folder / "closed.http", folder / "open.http"
        self.closed.write_bytes(request_of(*body_of(inputs)))
        self.open.write_bytes(request_of(*body_of(inputs, deadline)))


@dataclass
class _ServerTrial:
    """One measurement."""

    spec: ServeSpec
    package: Package
    threads: int
    files: _Files
    servers: Mapping[str, ServerProcess]
    tell: Tell
    turns: dict[tuple[str, int], list[Reached]] = field(
        default_factory=dict[tuple[str, int], list[Reached]]
    )

    def report(self) -> ServeReport:
        """Check that all run the same model, then measure closed loops and open loops."""
        recipe = self.package.manifest.recipe
        snr_db = {name: self._compare(name, server) for name, server in self.servers.items()}
        for number in range(self.spec.rounds):
            self._round(number)
        points = tuple(
            Point(contender=name, clients=clients, turns=tuple(turns))
            for (name, clients), turns in sorted(self.turns.items(), key=lambda each: each[0][1])
        )
        times = self.spec.overload
        overloads = [self._overload(name, points) for name in self.servers] if times else []
        return ServeReport(
            package=self.spec.package.name,
            engine=f"{recipe.engine} {recipe.precision}",
            threads=self.threads,
            points=points,
            overloads=tuple(overloads),
            snr_db=snr_db,
            notes=tuple(self._notes()),
        )

    # ---- before --------------------------------------------------------------------------------

    def _compare(self, name: str, server: ServerProcess) -> float:
        """Signal to noise of a contender's outputs, in dB."""
        self.tell(f"{name} is compared")
        check = self.package.check
        body, length = body_of(check.inputs)
        fields = {JSON_LENGTH: str(length), "content-type": "application/octet-stream"}
        request = urllib.request.Request(server.url + PATH, body, fields)
        try:
            with urllib.request.urlopen(request, timeout=_END_SECONDS) as answer:
                outputs = tensors_of(answer.read(), int(answer.headers[JSON_LENGTH]))
        except urllib.error.HTTPError as error:
            raise ProcessError(f"{name} answers {error.code}: {error.read()[:200]!r}") from error
        missing = [each for each in check.outputs if each not in outputs]
        if missing:
            raise UsageError(f"{name} has no output {missing[0]!r}; it has {', '.join(outputs)}")
        comparison = Comparison()
        comparison.add(outputs, check.outputs)
        if comparison.snr_db < SURE_DB:
            raise UsageError(
                f"outputs of {name} are {comparison.snr_db:.0f} dB beside the package's, and"
                f" {SURE_DB:g} is the least: both files have to be of one model"
            )
        return comparison.snr_db

    def _notes(self) -> Generator[str]:
        recipe = self.package.manifest.recipe
        if self.spec.onnx is not None and (recipe.engine, recipe.precision) != ONNX_RUNTIME:
            yield (
                f"ours runs by {recipe.engine} in {recipe.precision}, the peer by ONNX Runtime:"
                " engines are compared too; leave --onnx out to compare servers"
            )
        if 1 not in self.spec.clients:
            yield "what serving adds to a call was not measured: 1 is not among the clients"

    # ---- closed loops --------------------------------------------------------------------------

    def _round(self, number: int) -> None:
        """Give every contender a turn with each number of clients; every second round is reversed.

        Calls in this process have their turn between the turns of one client.
        """
        names = [*self.servers]
        for clients in self.spec.clients:
            contenders = names if clients > 1 else [names[0], "", *names[1:]]
            for name in contenders if number % 2 == 0 else contenders[::-1]:
                self.tell(
                    f"round {number + 1} of {self.spec.rounds}: "
                    + (f"{name} with {clients} clients" if name else "calls in process")
                )
                key = (name, clients) if name else (OURS, 0)
                self.turns.setdefault(key, []).append(self._closed(name, clients))

    def _closed(self, name: str, clients: int) -> Reached:
        load = Load(
            url=self.servers[name].url if name else "",
            request=str(self.files.closed if name else self.spec.package),
            seconds=self.spec.seconds,
            clients=clients,
            threads=self.threads,
        )
        turn = _turn(load)
        if set(turn.statuses) != {OK}:
            raise ProcessError(
                f"{name} with {clients} clients: answers by status are {turn.statuses}; all have to"
                " be 200, and some in a turn: say a longer --turn-time"
            )
        return Reached.of(turn)

    # ---- open loops ----------------------------------------------------------------------------

    def _overload(self, name: str, points: Sequence[Point]) -> Overload:
        """Send a contender more requests than its best rate in a closed loop."""
        capacity = max(
            each.middle.rate for each in points if each.contender == name and each.clients
        )
        rate = self.spec.overload * capacity
        self.tell(f"{name} is asked {rate:.0f} times a second")
        server = self.servers[name]
        load = Load(
            url=server.url,
            request=str(self.files.open),
            seconds=self.spec.overload_seconds,
            rate=rate,
            pid=server.pid,
        )
        return Overload(contender=name, rate=rate, deadline=self.spec.deadline, turn=_turn(load))


def _wait_for(url: str) -> None:
    """Return when a server lets clients in, which may be a moment after it says so."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    end = time.monotonic() + _END_SECONDS
    while True:
        try:
            socket.create_connection((parts.hostname, parts.port)).close()
            return
        except ConnectionRefusedError as error:
            if time.monotonic() > end:
                raise ProcessError(f"{url} lets nobody in after {_END_SECONDS:g} s") from error
            time.sleep(_LOOK_SECONDS)


def _commands(spec: ServeSpec, threads: int) -> dict[str, list[str]]:
    """Return the command of each contender's server, ours first."""
    commands = {
        OURS: [
            sys.executable, "-m", "slipstream.cli", "serve", f"{MODEL}={spec.package}",
            "--port", "0", "--grpc-port", "-1", "--threads", str(threads),
        ]
    }  # fmt: skip
    if spec.peer != "none":
        module = "slipstream.bench.serve.peer"
        file = spec.onnx or spec.package
        peer = [sys.executable, "-m", module, str(file), "0", str(threads)]
        # Which is faster depends on the clients; ours has to be beside the best of both.
        commands[spec.peer] = [*peer, "1"]
        commands[f"{spec.peer} x2"] = [*peer, "2"]
    return commands


def _turn(load: Load) -> ServeTurn:
    cores = frozenset(os.sched_getaffinity(0))
    return ServeTurn.from_text(run_to_end("serve.clients", load.as_text(), cores))
