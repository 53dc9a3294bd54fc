"""Test that shows whether a waiting stream of one process delays other processes on the GPU."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .bench import Bench, Row, microseconds, open_bench, rounded
from .host_memory import MEBIBYTE, registered, words
from .load import busy

STATES = ("idle", "wait value pending", "spinning kernel", "busy")
OTHERS = (1, 3)
ROUNDS = 2000
LONG = 20_000
KERNELS = 100
# Beside busy processes, fewer rounds than these fit.
MEASURE_SECONDS = 1.0
ROUND_TRIP_SECONDS = 2.0


class Worker:
    """An executor of commands in one of the processes that share the GPU.

    A command is the name of a method of this class, with arguments.

    Args:
        connection: Pipe to the process that sends commands. It is None in that process itself,
            which calls the methods directly.
    """

    def __init__(self, bench: Bench, connection: Connection | None) -> None:
        self.bench, self.connection = bench, connection
        self.device = bench.device
        self.gate, self.ready = words(self.device, 2)
        self.stream = self.device.stream(priority=self.device.priorities()[1])
        self.load = busy(bench)[0]
        self.host, self.memory = registered(self.device, MEBIBYTE), self.device.allocate(MEBIBYTE)
        self.value = 0

    def has_command(self) -> bool:
        """Return whether a command has arrived."""
        return self.connection is not None and self.connection.poll()

    def stay(self, state: str) -> Row:
        """Keep the GPU in a state from `STATES` until the next command arrives."""
        self.value += 1
        if state == "wait value pending":
            self.device.wait_value(self.stream, self.gate.device, self.value)
        if state == "spinning kernel":
            spin = self.bench.kernels.spin_until(self.gate.device)
            spin.arguments[-1].value = self.value
            spin(self.stream)
        while not self.has_command():
            if state == "busy":
                self.load.top_up()
            else:
                time.sleep(0.001)
        self.gate.cell.value = self.value
        self.device.call("cuCtxSynchronize")
        return {}

    def rest(self) -> Row:
        """Do nothing; the arrival of this command ends `stay`."""
        return {}

    def measure(self, rounds: int = ROUNDS) -> Row:
        """Measure an empty kernel, a copy to the host, and kernels that fill the GPU.

        The kernels that fill the GPU run one after another, without a pause.
        """
        device, nothing = self.device, self.bench.kernels.nothing()
        times: dict[str, list[int]] = {"kernel": [], "copy_1_mib": []}
        for name, samples in times.items():
            deadline = time.monotonic() + MEASURE_SECONDS
            while len(samples) < rounds and time.monotonic() < deadline:
                start = time.perf_counter_ns()
                if name == "kernel":
                    nothing(self.stream)
                else:
                    device.to_host(self.host.host, self.memory, MEBIBYTE, self.stream)
                device.synchronize(self.stream)
                samples.append(time.perf_counter_ns() - start)
        start = time.perf_counter()
        for _ in range(KERNELS):
            self.load.enqueue()
        device.synchronize(self.load.stream)
        seconds = time.perf_counter() - start
        spreads = {f"{name}_{k}": v for name in times for k, v in microseconds(times[name]).items()}
        return spreads | {"full_kernel_mean_microseconds": rounded(seconds / KERNELS * 1e6)}

    def round_trips(self, computing: bool) -> Row:
        """Measure the times from releasing a waiting stream until it answers by writing a word.

        With `computing`, another stream computes at the same time.
        """
        times: list[int] = []
        deadline = time.monotonic() + ROUND_TRIP_SECONDS
        while len(times) < ROUNDS and time.monotonic() < deadline:
            self.value += 1
            if computing:
                self.load.top_up()
            self.device.wait_value(self.stream, self.gate.device, self.value)
            self.device.write_value(self.stream, self.ready.device, self.value)
            times.append(
                self.bench.loops.release_and_await(self.gate, self.ready, self.value, delay=20_000)
            )
        self.device.call("cuCtxSynchronize")
        return {"rounds": len(times), "missed": sum(t < 0 for t in times), **microseconds(times)}


def serve(folder: Path, connection: Connection) -> None:
    """Execute commands from a pipe, and send the results back, until the process ends."""
    worker = Worker(open_bench(folder), connection)
    connection.send({})
    while True:
        method, *arguments = connection.recv()
        connection.send(getattr(worker, method)(*arguments))


class Team:
    """Worker processes that share the GPU."""

    def __init__(self, folder: Path, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Any] = []
        self.processes: list[Any] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(folder, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        self.answers(count)

    def tell(self, count: int, method: str, *arguments: object) -> None:
        """Send a command to each of the first `count` processes."""
        for pipe in self.pipes[:count]:
            pipe.send((method, *arguments))

    def answers(self, count: int) -> list[Row]:
        """Wait for one result from each of the first `count` processes, and return the results."""
        return [pipe.recv() for pipe in self.pipes[:count]]


def slowest(rows: list[Row]) -> Row:
    """Return the results of the process whose median time is the longest."""
    return max(rows, key=lambda row: row.get("median_microseconds", 0))


def neighbours(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield times that `Worker.measure` takes while other processes use the GPU.

    At first, the other processes are in one of `STATES`, one state after another. Then several
    processes measure round trips at once, and the times of the slowest process are yielded. At
    last, a process with a waiting stream is killed during the measurement.
    """
    team = Team(bench.image.parent, max(OTHERS))
    me = Worker(bench, None)
    yield {"other_processes": 0, "state": "none but their contexts", **me.measure()}
    for count in OTHERS:
        for state in STATES:
            team.tell(count, "stay", state)
            time.sleep(0.05)
            row = {"other_processes": count, "state": state, **me.measure()}
            team.tell(count, "rest")
            team.answers(count)
            team.answers(count)
            yield row
    for count in (0, *OTHERS):
        for computing in (False, True):
            team.tell(count, "round_trips", computing)
            mine = me.round_trips(computing)
            rows = [mine, *team.answers(count)]
            yield {"processes": count + 1, "all_compute": computing, **slowest(rows)}
    team.tell(1, "stay", STATES[1])
    time.sleep(0.05)
    killer = threading.Timer(0.01, team.processes[0].kill)
    killer.start()
    yield {"other_processes": 1, "state": "killed while its wait is pending", **me.measure(LONG)}
