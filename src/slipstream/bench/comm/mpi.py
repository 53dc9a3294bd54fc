"""One rank of the benchmark over MPI: mpirun ... python -m slipstream.bench.comm.mpi JOB.

JOB is JSON text from `CommJob.as_text`.
"""

# The type stubs of mpi4py leave the types of buffers unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import gc
import importlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from slipstream.bench.comm.job import NOTE, CommJob, CommSamples, calls_in_a_row, write_samples


def main(text: str) -> None:
    """Measure collectives together with the other ranks.

    Args:
        text: Instructions as JSON text, from `CommJob.as_text`.
    """
    job = CommJob.from_text(text)
    gc.disable()  # a garbage collection in one rank would make all ranks wait
    mpi: Any = importlib.import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    samples: list[CommSamples] = []
    for collective in job.collectives:
        for size in job.sizes:
            if world.Get_rank() == 0:
                print(f"{NOTE}{collective} of {size:,} bytes over MPI", flush=True)
            samples.append(_measure(mpi, job, collective, size))
    if world.Get_rank() == 0:
        write_samples(job.output, samples)


def _operation(mpi: Any, collective: str, size: int) -> Callable[[], object]:
    world = mpi.COMM_WORLD
    ranks = world.Get_size()
    share = max(1, -(-size // (4 * ranks)))
    buffer, part = np.zeros(share * ranks, np.float32), np.zeros(share, np.float32)
    other = np.zeros(share * ranks if collective == "all_to_all" else 0, np.float32)
    calls: Mapping[str, Callable[[], object]] = {
        "allreduce": lambda: world.Allreduce(mpi.IN_PLACE, buffer),
        "all_gather": lambda: world.Allgather(part, buffer),
        "reduce_scatter": lambda: world.Reduce_scatter_block(buffer, part),
        "broadcast": lambda: world.Bcast(buffer),
        "all_to_all": lambda: world.Alltoall(buffer, other),
    }
    return calls[collective]


def _measure(mpi: Any, job: CommJob, collective: str, size: int) -> CommSamples:
    world, call = mpi.COMM_WORLD, _operation(mpi, collective, size)
    for _ in range(job.warmup):
        call()
    calls = calls_in_a_row(world.allreduce(_timed(world, call, 1), mpi.MAX))
    seconds = [world.allreduce(_timed(world, call, calls), mpi.MAX) for _ in range(job.rounds)]
    return CommSamples(
        collective=collective, size=size, contender="mpi", calls=calls, seconds=tuple(seconds)
    )


def _timed(world: Any, call: Callable[[], object], calls: int) -> float:
    world.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


if __name__ == "__main__":
    main(sys.argv[1])
