"""Comparison of Slipstream's server with another server: throughput, latency and overload.

    report = measure(ServeSpec(package=Path("model.slip"), onnx=Path("model.onnx")))

The other server (the peer) runs FastAPI. Servers and clients have their own processes and share the
cores of the machine. Slipstream's server and the peer (the contenders) take turns. Nothing else
should run on the machine.
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
from slipstream.bench.serve.results import OK, OURS, Overload, Point, ServeReport, TurnResult
from slipstream.bench.serve.wire import MODEL, PATH, body_of, request_of, tensors_of
from slipstream.errors import UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.machine import usable_cores
from slipstream.infer.package.package import Package, read
from slipstream.serve.protocol.messages import JSON_LENGTH

PEERS = ("fastapi", "none")
# engine and precision with which the FastAPI server runs the ONNX file
ONNX_RUNTIME = ("onnxruntime", "fp32")
# lowest signal-to-noise ratio to the package's outputs, in dB, at which the models can be the same
SURE_DB = 10.0

_END_SECONDS = 40.0  # time limit in seconds for the start, the first answer and the end of a server
_LAST_LINES = 5  # last lines of a failed server's output, which the error quotes
_POLL_SECONDS = 0.01

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeSpec:
    """Settings of the serving benchmark.

    Args:
        package: Path of a package that `slipstream compile` wrote.
        onnx: Path of an ONNX file of the same model, which the FastAPI server runs with ONNX
            Runtime (default None: the FastAPI server runs the package, as our server does).
        clients: Numbers of clients, at least 1 each; each number is measured in closed loops of its
            own. The overhead of serving is measured with one client.
        rounds: Number of rounds, at least 1. In each round, every server has one turn with each
            number of clients.
        seconds: Length of a turn in seconds. In a turn, the clients of a closed loop send requests
            to one server.
        threads: Number of threads with which every server runs the model (default None: the number
            for which the package was compiled).
        overload: Request rate of the open loop, as a multiple of the server's best rate in closed
            loops (default 2); 0 for no open loop.
        overload_seconds: Length of the open loop in seconds.
        deadline: Deadline of each request of the open loop, in seconds.
        peer: Name of the server that is compared with ours, from `PEERS` (default "fastapi").
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
        """Check the values."""
        if self.peer not in PEERS:
            raise UsageError(f"the peer is {self.peer!r}; allowed: {', '.join(PEERS)}")
        if self.onnx is not None and self.peer == "none":
            raise UsageError("onnx is a file for the peer, but the peer is none: leave onnx out")
        if self.onnx is not None and not self.onnx.is_file():
            raise UsageError(f"there is no file {self.onnx}")
        if not self.clients or min(self.clients) < 1:
            raise UsageError(f"the clients are {self.clients}; allowed: numbers from 1")
        if self.rounds < 1 or (self.threads is not None and self.threads < 1):
            raise UsageError(
                f"rounds is {self.rounds}, threads {self.threads}; allowed: at least 1"
            )
        if min(self.seconds, self.overload_seconds, self.deadline) <= 0 or self.overload < 0:
            raise UsageError(
                f"seconds is {self.seconds}, overload_seconds {self.overload_seconds}, the deadline"
                f" {self.deadline}, the overload {self.overload}; allowed: numbers above 0, and 0"
                " for the overload"
            )


def measure(spec: ServeSpec, tell: Tell = lambda text: None) -> ServeReport:
    """Run the measurement, which takes some minutes.

    Args:
        spec: Settings of the measurement.
        tell: Function that receives a line of progress about each step (default: lines are
            dropped).

    Raises:
        UsageError: the package cannot be read, or the FastAPI server runs another model.
        ProcessError: a server or the clients failed.
    """
    package = read(spec.package)
    threads = spec.threads or min(package.manifest.threads, usable_cores())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        files = _Files(Path(folder), package, spec.deadline)
        servers: dict[str, ServerProcess] = {}
        for name, command in _commands(spec, threads).items():
            tell(f"starting {name}")
            servers[name] = stack.enter_context(started(name, command))
        return _ServerTrial(spec, package, threads, files, servers, tell).report()


class ServerProcess:
    """A running server in a separate process, started by the function `started`.

    Args:
        process: Process of the server.
        url: Address of the server.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process, self.url = process, url

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid


@contextmanager
def started(name: str, command: Sequence[str]) -> Generator[ServerProcess]:
    """Start a server, wait until it listens, and end it when the `with` block ends.

    Args:
        name: Name of the server in messages.
        command: Command that runs the server, which prints "REST" and its address when it listens.

    Raises:
        ProcessError: the server failed; the message quotes the last lines of its output.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("REST"):
                process.wait(_END_SECONDS)
                log.seek(0)
                last = " / ".join(log.read().splitlines()[-_LAST_LINES:])
                raise ProcessError(f"{name} did not start: {line.strip()} {last}")
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
    """Files with the requests that the clients send.

    Args:
        folder: Folder in which the files are written.
        package: Package whose example inputs are sent.
        deadline: Deadline of the requests of the open loop, in seconds.
    """

    def __init__(self, folder: Path, package: Package, deadline: float) -> None:
        inputs = package.check.inputs
        self.closed, self.open = folder / "closed.http", folder / "open.http"
        self.closed.write_bytes(request_of(*body_of(inputs)))
        self.open.write_bytes(request_of(*body_of(inputs, deadline)))


@dataclass
class _ServerTrial:
    """Measurement of servers that are already running."""

    spec: ServeSpec
    package: Package
    threads: int
    files: _Files
    servers: Mapping[str, ServerProcess]
    tell: Tell
    turns: dict[tuple[str, int], list[TurnResult]] = field(
        default_factory=dict[tuple[str, int], list[TurnResult]]
    )

    def report(self) -> ServeReport:
        """Check that all servers run the same model, and run the closed and the open loops."""
        recipe = self.package.manifest.recipe
        snr_db = {name: self._compare(name, server) for name, server in self.servers.items()}
        for number in range(self.spec.rounds):
            self._round(number)
        points = tuple(
            Point(contender=name, clients=clients, turns=tuple(turns))
            for (name, clients), turns in sorted(self.turns.items(), key=lambda item: item[0][1])
        )
        contenders = self.servers if self.spec.overload else ()
        overloads = [self._overload(name, points) for name in contenders]
        return ServeReport(
            package=self.spec.package.name,
            engine=f"{recipe.engine} {recipe.precision}",
            threads=self.threads,
            points=points,
            overloads=tuple(overloads),
            snr_db=snr_db,
            notes=tuple(self._notes()),
        )

    # ---- comparison ----------------------------------------------------------------------------

    def _compare(self, name: str, server: ServerProcess) -> float:
        """Return the signal-to-noise ratio of a server's outputs to the package's, in dB."""
        self.tell(f"comparing the outputs of {name}")
        check = self.package.check
        body, length = body_of(check.inputs)
        fields = {JSON_LENGTH: str(length), "content-type": "application/octet-stream"}
        request = urllib.request.Request(server.url + PATH, body, fields)
        try:
            with urllib.request.urlopen(request, timeout=_END_SECONDS) as answer:
                outputs = tensors_of(answer.read(), int(answer.headers[JSON_LENGTH]))
        except urllib.error.HTTPError as error:
            raise ProcessError(f"{name} answers {error.code}: {error.read()[:200]!r}") from error
        missing = [output for output in check.outputs if output not in outputs]
        if missing:
            raise UsageError(f"{name} has no output {missing[0]!r}; it has {', '.join(outputs)}")
        comparison = Comparison()
        comparison.add(outputs, check.outputs)
        if comparison.snr_db < SURE_DB:
            raise UsageError(
                f"the outputs of {name} have a signal-to-noise ratio of {comparison.snr_db:.0f} dB"
                f" against the package's, at least {SURE_DB:g} are needed: give files of the same"
                " model"
            )
        return comparison.snr_db

    def _notes(self) -> Generator[str]:
        recipe = self.package.manifest.recipe
        if self.spec.onnx is not None and (recipe.engine, recipe.precision) != ONNX_RUNTIME:
            yield (
                f"ours runs {recipe.engine} in {recipe.precision}, but the peer ONNX Runtime, so"
                " engines are compared too; leave --onnx out to compare only the servers"
            )
        if 1 not in self.spec.clients:
            yield "the overhead of serving was not measured, because it needs a turn of 1 client"

    # ---- closed loops --------------------------------------------------------------------------

    def _round(self, number: int) -> None:
        """Give every server a turn with each number of clients.

        Every second round has the reverse order. The package also has a turn without a server,
        between the servers' turns with one client.
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

    def _closed(self, name: str, clients: int) -> TurnResult:
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
                f"{name} with {clients} clients: the numbers of answers by status are"
                f" {turn.statuses}; a turn needs at least one answer, and all have to be 200: try"
                " a longer --turn-time"
            )
        return TurnResult.of(turn)

    # ---- open loops ----------------------------------------------------------------------------

    def _overload(self, name: str, points: Sequence[Point]) -> Overload:
        """Send requests to a server at a multiple of its best rate in closed loops."""
        capacity = max(
            point.middle.rate for point in points if point.contender == name and point.clients
        )
        rate = self.spec.overload * capacity
        self.tell(f"sending {rate:.0f} requests per second to {name}")
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
    """Wait until a server accepts connections; it may print its address a moment earlier."""
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
                raise ProcessError(
                    f"{url} accepts no connections after {_END_SECONDS:g} s"
                ) from error
            time.sleep(_POLL_SECONDS)


def _commands(spec: ServeSpec, threads: int) -> dict[str, list[str]]:
    """Return the command that starts each server, by the server's name; ours is the first."""
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
        # FastAPI runs with one and with two batches at a time, and the faster variant is compared.
        commands[spec.peer] = [*peer, "1"]
        commands[f"{spec.peer} x2"] = [*peer, "2"]
    return commands


def _turn(load: Load) -> ServeTurn:
    cores = frozenset(os.sched_getaffinity(0))
    return ServeTurn.from_text(run_to_end("serve.clients", load.as_text(), cores))
