"""One rank of the benchmark of the NCCL plugin: python -m slipstream.bench.plugin.rank JOB.

JOB is JSON text from `PluginJob.as_text`. In each round, the plugin and the plain sockets take
turns.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from slipstream import comm
from slipstream.bench.plugin.contenders import Bytes, Plugin, PluginContender, Sockets
from slipstream.bench.plugin.job import (
    RECEIVER,
    SENDER,
    PluginJob,
    PluginSamples,
    write_samples,
)
from slipstream.cluster.launch.nccl import plugin_library
from slipstream.errors import InternalError
from slipstream.settings import detect_launcher

NOISE_BYTES = 999_983  # a prime, so that no two segments of a message are equal


def measure(job: PluginJob, contenders: list[PluginContender]) -> list[PluginSamples]:
    """Measure all ways to send messages, which takes seconds.

    Args:
        job: Settings, the same on both ranks.
        contenders: Ways to send messages, in the same order on both ranks.
    """
    turns: dict[tuple[str, int], list[tuple[float, float, float]]] = defaultdict(list)
    for number in range(job.rounds + 1):
        for contender in contenders:
            for size in job.sizes:
                turn = _turn(contender, size, job.request_bytes, number)
                if number:  # the first round does not count, because connections start slowly
                    turns[contender.name, size].append(turn)
    return [
        PluginSamples(
            contender=name,
            size=size,
            seconds=tuple(turn[0] for turn in measured),
            sender_cpu=tuple(turn[1] for turn in measured),
            receiver_cpu=tuple(turn[2] for turn in measured),
        )
        for (name, size), measured in turns.items()
    ]


def _turn(
    contender: PluginContender, size: int, request_bytes: int, number: int
) -> tuple[float, float, float]:
    """Move one message; return the seconds, and the processor seconds of sender and receiver."""
    data = _message(size, number)
    expected: Bytes = np.array(data)
    if comm.rank() == RECEIVER:
        data[:] = 0
    comm.barrier()
    cpu, start = time.process_time(), time.perf_counter()
    contender.move(data, request_bytes)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if not np.array_equal(data, expected):
        raise InternalError(f"{contender.name} has delivered other data than were sent")
    numbers = np.zeros(3)
    numbers[0] = seconds
    numbers[1 if comm.rank() == SENDER else 2] = cpu
    comm.allreduce(numbers, "max")
    return (float(numbers[0]), float(numbers[1]), float(numbers[2]))


def _message(size: int, number: int) -> Bytes:
    """Return `size` random bytes, which differ between rounds and within a message."""
    noise = np.random.default_rng(number).integers(0, 256, NOISE_BYTES, dtype=np.uint8)
    return np.resize(noise, size)


def main(text: str) -> None:
    """Measure together with the other rank; the receiver writes the results.

    Args:
        text: Settings as JSON text, from `PluginJob.as_text`.
    """
    job = PluginJob.from_text(text)
    group, address = comm.init(), detect_launcher().master_addr
    with tempfile.TemporaryDirectory(prefix="slipstream-plugin-") as folder:
        library = plugin_library()
        contenders: list[PluginContender] = [
            *(Plugin(group, library, count, Path(folder)) for count in job.streams),
            *(Sockets(group, address, count) for count in job.sockets),
        ]
        samples = measure(job, contenders)
        comm.barrier()
        for contender in contenders:
            contender.close()
    if comm.rank() == RECEIVER:
        write_samples(Path(job.output), samples)
    comm.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
