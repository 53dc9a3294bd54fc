"""One rank of a measurement of collectives: python -m slipstream.bench.comm.rank JOB.

JOB is JSON text from `CommJob.as_text`. Environment variables, the same as with torchrun, identify
the rank. Contenders take turns in each round. A turn is a number of consecutive calls after a
barrier. The time of a turn is the slowest rank's time.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import gc
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from slipstream.bench.comm.contenders import Buffers, CollectiveContender, make_contender
from slipstream.bench.comm.job import (
    COPY_AND_ADD,
    HOST_COPIES,
    NOTE,
    PING_PONG,
    READ,
    YARDSTICKS,
    CommJob,
    CommSamples,
    calls_in_a_row,
    write_samples,
)
from slipstream.bench.comm.yardsticks import PingPong, copy_and_add, host_copies
from slipstream.errors import InternalError

READING_SECONDS = 30.0  # time limit in seconds for the driver's reading of the link counters

LARGEST_PING = 64 << 10  # bytes; the link limits larger messages, not latency
LEAST_COPY = 1_000_000  # bytes; the interpreter, not memory, limits smaller copies


@dataclass(frozen=True, slots=True)
class CollectiveTurn:
    """What one contender runs when it has its turn.

    Args:
        name: Name of the contender.
        call: Function that runs the collective or the reference measurement once.
        prepare: Function that writes the input before the clock starts.
        is_collective: Whether `call` runs a collective, so that the bytes on the links can be
            counted; False for reference measurements.
    """

    name: str
    call: Callable[[], None]
    prepare: Callable[[], None]
    is_collective: bool


class Measurement:
    """This rank's part in the measurement of all contenders.

    Args:
        job: Instructions about what to measure; the same on all ranks.
    """

    def __init__(self, job: CommJob) -> None:
        self._job = job
        self._numbers = itertools.count()
        self._contenders = [
            make_contender(name, job.device) for name in job.contenders if name not in YARDSTICKS
        ]
        self._ping: PingPong | None = None
        if PING_PONG in job.contenders:
            self._ping = PingPong(job.ping_ranks, job.ping_address)

    def run(self) -> list[CommSamples]:
        """Measure everything, which takes minutes, and return the samples."""
        samples: list[CommSamples] = []
        for collective in self._job.collectives:
            for size in self._job.sizes:
                _tell(f"{NOTE}{collective} of {size:,} bytes")
                turns = list(self._turns(collective, size))
                samples += self._measure(collective, size, turns)
        if self._ping is not None:
            self._ping.close()
        return samples

    def _turns(self, collective: str, size: int) -> Iterator[CollectiveTurn]:
        """Yield a turn for each contender; contenders on the same device share their buffers."""
        buffers: dict[torch.device, Buffers] = {}
        for contender in self._contenders:
            if not contender.supports(collective):
                continue
            device = contender.device
            if device not in buffers:
                buffers[device] = Buffers(collective, size, device)
            yield self._checked(contender, buffers[device])
        if self._ping is not None and size <= LARGEST_PING:
            yield CollectiveTurn(PING_PONG, self._ping.call(size), lambda: None, False)
        compares_memory = COPY_AND_ADD in self._job.contenders and collective == "allreduce"
        if compares_memory and size >= LEAST_COPY:
            loop = copy_and_add(size, dist.get_world_size())
            yield CollectiveTurn(COPY_AND_ADD, loop, lambda: None, False)
        if HOST_COPIES in self._job.contenders and size >= LEAST_COPY:
            loop = host_copies(size, self._contenders[0].device)
            yield CollectiveTurn(HOST_COPIES, loop, lambda: None, False)

    def _checked(self, contender: CollectiveContender, buffers: Buffers) -> CollectiveTurn:
        call = contender.call(buffers)
        contender.check(buffers, call)
        return CollectiveTurn(contender.name, call, buffers.reset, True)

    def _measure(
        self, collective: str, size: int, turns: list[CollectiveTurn]
    ) -> list[CommSamples]:
        calls = [self._warm_up(turn) for turn in turns]
        seconds: list[list[float]] = [[] for _ in turns]
        for _ in range(self._job.rounds):
            for turn, count, measured in zip(turns, calls, seconds, strict=True):
                measured.append(_timed(turn, count))
        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        samples = [
            CommSamples(
                collective=collective,
                size=size,
                contender=turn.name,
                calls=count,
                seconds=tuple(measured),
            )
            for turn, count, measured in zip(turns, calls, slowest.tolist(), strict=True)
        ]
        if not 0 < self._job.counted_from <= size:
            return samples
        return [
            replace(sample, readings=self._read_around(turn)) if turn.is_collective else sample
            for sample, turn in zip(samples, turns, strict=True)
        ]

    def _warm_up(self, turn: CollectiveTurn) -> int:
        """Run the warm-up calls; return the number of calls per turn, which all ranks share."""
        for _ in range(self._job.warmup):
            _timed(turn, 1)
        slowest = torch.tensor(_timed(turn, 2), dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return calls_in_a_row(slowest.item())

    def _read_around(self, turn: CollectiveTurn) -> tuple[int, ...]:
        """Read the link counters before and after one call; return both readings' identifiers."""
        turn.prepare()
        before = self._read()
        turn.call()
        return before, self._read()

    def _read(self) -> int:
        """Have the link counters read while no rank sends; return the identifier of the reading."""
        number = next(self._numbers)
        dist.barrier()
        _tell(f"{READ}{number}")
        taken = self._job.reading(number)
        deadline = time.monotonic() + READING_SECONDS
        while not taken.exists():
            if time.monotonic() > deadline:
                raise InternalError(f"the driver took no reading within {READING_SECONDS:g} s")
            time.sleep(0.001)
        dist.barrier()
        return number


def main(text: str) -> None:
    """Measure collectives together with the other ranks.

    Args:
        text: Instructions as JSON text, from `CommJob.as_text`.
    """
    job = CommJob.from_text(text)
    gc.disable()  # a garbage collection in one rank would make all ranks wait
    dist.init_process_group("gloo")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // dist.get_world_size()))
    try:
        samples = Measurement(job).run()
        if dist.get_rank() == 0:
            write_samples(job.output, samples)
    finally:
        dist.destroy_process_group()


def _timed(turn: CollectiveTurn, calls: int) -> float:
    """Return the mean seconds per call over consecutive calls.

    Ranks leave gloo's barrier up to some milliseconds apart. A first call, which is not timed,
    brings the ranks together. The measurement over MPI uses the barrier of MPI instead.
    """
    turn.prepare()
    dist.barrier()
    if calls > 1:
        turn.call()
    start = time.perf_counter()
    for _ in range(calls):
        turn.call()
    return (time.perf_counter() - start) / calls


def _tell(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
