"""Attack a job of 4 ranks from outside, and compare its CPU seconds with those without attacks.

    python tests/soak/strangers.py --rounds 9 --seconds 10 --seed 1

A stranger opens 1,000 connections a second to all ports of the job (engines and members), and
sends garbage, oversized headers, recorded handshakes, and handshakes with another key; 100
connections for each port stay half open and send a byte a second. Nobody may be accepted, every sum
must be right, memory must be flat, and the attack may cost 5 % of the job's CPU seconds at most.

The stranger itself takes most of a core of this machine, and a step costs more beside it, whomever
it attacks. So times in which it attacks the job alternate with times in which it attacks a decoy,
and with quiet ones. On a machine that does other things too, the job makes fewer steps and the
stranger opens fewer connections than they should. So the cost is computed from the CPU seconds of a
step beside the decoy, and of a connection to the job: both are medians of all rounds, and the ratio
is that at the full pace of both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream import _core
from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.comm.auth import Claim
from slipstream.comm.channel import open_channel
from slipstream.comm.elastic.epoch import encode

HERE = Path(__file__).parent
RANKS = 4
STEPS_PER_SECOND = 10.0
ANSWER_BYTES = 80  # the longest challenge; who gets more was accepted
MOST_RATIO = 1.05
GROWTH_BYTES = 32 << 20


class StrangersError(Exception):
    """The job did not withstand the strangers as it should."""


class Attacked:
    """The job: its processes, and what they use."""

    def __init__(self, folder: Path) -> None:
        self.key = secrets.token_hex(16)
        self.stop_file = folder / "stop"
        self.member_ports = [find_free_port_pair() for _ in range(RANKS)]
        self.logs = [folder / f"rank{rank}.log" for rank in range(RANKS)]
        self.processes = [self._start(rank) for rank in range(RANKS)]

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        environ = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.member_ports[0]),
            "SLIPSTREAM_JOB_KEY": self.key,
            "SLIPSTREAM_HOST_ID": f"host {rank}",  # so that the ranks use TCP
            "SLIPSTREAM_MEMBER_PORT": str(self.member_ports[rank]),
            "SLIPSTREAM_MEMBERS": ",".join(f"127.0.0.1:{port}" for port in self.member_ports),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [sys.executable, str(HERE / "strangers_rank.py")]
        with self.logs[rank].open("wb") as log:
            return subprocess.Popen(
                [*command, str(STEPS_PER_SECOND), str(self.stop_file)],
                env={**os.environ, **environ},
                stdout=log,
                stderr=log,
            )

    def wait_for_start(self) -> None:
        deadline = time.monotonic() + 120
        while not all('"epoch"' in log.read_text() for log in self.logs):
            self.check()
            if time.monotonic() > deadline:
                raise StrangersError("the job did not start")
            time.sleep(0.1)

    def check(self) -> None:
        for process, log in zip(self.processes, self.logs, strict=True):
            if process.poll() not in (None, 0):
                raise StrangersError(f"a rank has failed:\n{log.read_text()[-3000:]}")

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that all ranks have used."""
        ticks = 0
        for process in self.processes:
            text = Path(f"/proc/{process.pid}/stat").read_text()
            fields = text.rpartition(") ")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def steps(self) -> int:
        """Return the number of steps so far."""
        text = self.stop_file.with_name("steps").read_text()
        return int(text)

    def memory(self) -> int:
        """Return the resident bytes of all ranks."""
        pages = [
            int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            for process in self.processes
        ]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def ports(self) -> list[tuple[str, int]]:
        """Return the addresses and ports on which the ranks listen by TCP."""
        inodes = set()
        for process in self.processes:
            for link in Path(f"/proc/{process.pid}/fd").iterdir():
                target = os.readlink(link) if link.is_symlink() else ""
                inodes.add(target.removeprefix("socket:[").rstrip("]"))
        ports: set[tuple[str, int]] = set()
        for table, host in (("/proc/net/tcp", "127.0.0.1"), ("/proc/net/tcp6", "::1")):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    ports.add((host, int(fields[1].rpartition(":")[2], 16)))
        return sorted(ports)

    def finish(self) -> int:
        """Let the job end, and return its number of steps."""
        self.stop_file.touch()
        for process in self.processes:
            process.wait(120)
        self.check()
        reports = [json.loads(log.read_text().splitlines()[-1]) for log in self.logs]
        epochs = sum(log.read_text().count('"epoch"') for log in self.logs)
        if epochs != RANKS:
            raise StrangersError("the members of the job have changed")
        return min(report["done"] for report in reports)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Recorder:
    """A relay for one connection, which records what the dialling end sends."""

    def __init__(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._target = port
        self.port: int = self._server.getsockname()[1]
        self.sent: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        far = socket.create_connection(("127.0.0.1", self._target))
        with self._server, self._server.accept()[0] as near, far:
            threading.Thread(target=self._answer, args=(near, far), daemon=True).start()
            while piece := near.recv(4096):
                self.sent.append(piece)
                far.sendall(piece)

    @staticmethod
    def _answer(near: socket.socket, far: socket.socket) -> None:
        try:
            while piece := far.recv(4096):
                near.sendall(piece)
        except OSError:
            pass


def record_member(job: Attacked) -> bytes:
    """Return the bytes of a real conversation with a member of the job."""
    recorder = Recorder(job.member_ports[0])
    claim = Claim(rank=0, world_size=0, epoch=0)
    deadline = time.monotonic() + 20
    key = job.key.encode()
    with open_channel("127.0.0.1", recorder.port, key=key, claim=claim, deadline=deadline) as it:
        it.send(encode({"ask": "who"}))
        it.receive(deadline, 1 << 20)
    return b"".join(recorder.sent)


def record_engine(key: bytes) -> bytes:
    """Return the bytes of the handshake between two engines."""
    ranks = [
        _core.Runtime(
            rank=rank, world_size=2, key=key, config=_core.Config(host_id=f"host {rank}", streams=1)
        )
        for rank in range(2)
    ]
    addresses = [rank.address() for rank in ranks]
    port = int(addresses[0].rpartition(b":")[2])
    recorder = Recorder(port)
    relayed = addresses[0].replace(b":%d" % port, b":%d" % recorder.port)
    dialler = threading.Thread(
        target=lambda: _try_to_connect(ranks[1], [relayed, addresses[1]]), daemon=True
    )
    dialler.start()
    _try_to_connect(ranks[0], addresses)
    dialler.join()
    for rank in ranks:
        rank.close()
    return b"".join(recorder.sent)[:104]


def _try_to_connect(rank: _core.Runtime, addresses: list[bytes]) -> None:
    """Connect; the recorder relays one stream only, and that is enough for a record."""
    try:
        rank.connect(addresses, 3.0)
    except RuntimeError:
        pass


def messages_of(job: Attacked, rng: random.Random) -> list[dict[str, str]]:
    """Return what a stranger sends: `first`, and `then` after the first answer."""
    member = record_member(job)
    # Engines prove keys of 32 bytes, which differ from the job's; a stranger does not know either.
    engine = record_engine(job.key.encode())
    wrong = record_engine(b"another key of a job")
    messages: list[tuple[bytes, bytes]] = [
        (rng.randbytes(200), b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b""),
        (b"SLIPMEET" + b"\xff" * 60, b"\xff" * 100),
        (engine[:8] + b"\xff" * 64, b"\xff" * 100),
        (b"\x16\x03\x01\x02\x00\x01" + rng.randbytes(500), b""),
        (b"", b""),
        (b"\xff" * 65536, b""),
    ]
    for recorded in (engine, wrong):
        messages.append((recorded, recorded))
        messages.append((recorded[:72], recorded[72:]))
    messages.append((member[:56], member[56:]))
    messages.append((member, member))
    return [{"first": first.hex(), "then": then.hex()} for first, then in messages]


def attack(folder: Path, plan: dict[str, Any]) -> dict[str, int]:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    output = subprocess.run(
        [sys.executable, str(HERE / "stranger.py"), str(path)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return json.loads(output)


@contextlib.contextmanager
def decoy(num_ports: int) -> Iterator[list[list[Any]]]:
    """Serve ports of no job; yield their addresses."""
    command = [sys.executable, str(HERE / "decoy.py"), str(num_ports)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


@dataclass(frozen=True, kw_only=True)
class Used:
    """What the job used and did in a time."""

    cpu_seconds: float
    steps: int
    seconds: float

    @property
    def text(self) -> str:
        cpu, pace = self.cpu_seconds / self.seconds, self.steps / self.seconds
        return f"{cpu:.3f} CPU s/s, {pace:.1f} steps/s"


def measure(job: Attacked, seconds: float, during: Callable[[], object]) -> Used:
    """Return what the job uses during a call, and until `seconds` have passed."""
    begin, used, steps = time.monotonic(), job.cpu_seconds(), job.steps()
    during()
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    result = Used(
        cpu_seconds=job.cpu_seconds() - used,
        steps=job.steps() - steps,
        seconds=time.monotonic() - begin,
    )
    job.check()
    return result


@dataclass(kw_only=True)
class Costs:
    """CPU seconds of a step and of a connection, and memory, of all rounds."""

    of_step: list[float] = field(default_factory=list)
    of_connection: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    connections: int = 0

    def add(self, beside: Used, attacked: Used, connections: int) -> None:
        self.of_step.append(beside.cpu_seconds / max(1, beside.steps))
        extra = attacked.cpu_seconds - attacked.steps * self.of_step[-1]
        self.of_connection.append(extra / max(1, connections))
        self.connections += connections

    def ratio(self, rate: float) -> float:
        """Return the CPU seconds with an attack of full rate, as a multiple of those without."""
        quiet = STEPS_PER_SECOND * statistics.median(self.of_step)
        return 1 + rate * statistics.median(self.of_connection) / quiet


def run(options: argparse.Namespace, folder: Path) -> None:
    rng = random.Random(options.seed)
    job = Attacked(folder)
    costs = Costs()
    try:
        job.wait_for_start()
        plan = {
            "ports": job.ports(),
            "messages": messages_of(job, rng),
            "rate": options.rate,
            "seconds": options.seconds,
            "slow": options.slow,
        }
        print(f"{len(plan['ports'])} ports, {len(plan['messages'])} kinds of messages", flush=True)
        for number in range(options.rounds):
            one_round(job, folder, plan | {"seed": options.seed + number}, costs)
        steps = job.finish()
    finally:
        job.kill()
    judge(options, costs)
    print(f"{steps} steps, {costs.connections} connections, none accepted")


def one_round(job: Attacked, folder: Path, plan: dict[str, Any], costs: Costs) -> None:
    outcome: dict[str, int] = {}
    quiet = measure(job, plan["seconds"], lambda: None)
    with decoy(len(plan["ports"])) as ports:
        elsewhere = plan | {"ports": ports}
        beside = measure(job, plan["seconds"], lambda: attack(folder, elsewhere))
    attacked = measure(job, plan["seconds"], lambda: outcome.update(attack(folder, plan)))
    if outcome["most_answered"] > ANSWER_BYTES:
        raise StrangersError(f"a stranger was accepted: {outcome}")
    costs.add(beside, attacked, outcome["count"])
    costs.memory.append(job.memory())
    print(
        f"quiet {quiet.text}; beside an attack {beside.text}; attacked {attacked.text},"
        f" {outcome['count']} connections of"
        f" {1e6 * costs.of_connection[-1]:.0f} us; {costs.memory[-1] >> 20} MiB",
        flush=True,
    )


def judge(options: argparse.Namespace, costs: Costs) -> None:
    ratio = costs.ratio(options.rate)
    print(
        f"medians of {options.rounds} rounds: a step takes"
        f" {1e3 * statistics.median(costs.of_step):.1f} ms of CPU time of all ranks, a stranger"
        f" {1e6 * statistics.median(costs.of_connection):.0f} us; with {STEPS_PER_SECOND:g} steps"
        f" and {options.rate:g} strangers a second {ratio:.3f} times the CPU seconds"
        f" (bar {MOST_RATIO})"
    )
    if costs.memory[-1] - costs.memory[0] > GROWTH_BYTES:
        raise StrangersError(f"memory grew from {costs.memory[0]} to {costs.memory[-1]} bytes")
    if not options.short and ratio > MOST_RATIO:
        raise StrangersError(f"the job used {ratio:.3f} times the CPU seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of each time")
    parser.add_argument("--rate", type=float, default=1000.0, help="connections a second")
    parser.add_argument("--slow", type=int, default=100, help="half-open connections for each port")
    parser.add_argument("--short", action="store_true", help="two rounds of 3 s; no bar for time")
    options = parser.parse_args()
    if options.short:
        options.rounds, options.seconds = 2, 3.0
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(options, Path(folder))
        except StrangersError as error:
            sys.exit(f"seed {options.seed}: {error}")


if __name__ == "__main__":
    main()
