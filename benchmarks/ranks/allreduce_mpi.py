"""One rank: times allreduce through Open MPI (mpi4py)."""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI


def main() -> None:
    """Prints, on rank 0, the median seconds of each size as one line of JSON."""
    sizes, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
    world = MPI.COMM_WORLD
    results: list[dict[str, object]] = []
    for size in sizes:
        array = np.zeros(size // 4, np.float32)
        calls = max(3, min(200, 20_000_000 // size))
        times: list[float] = []
        for turn in range(rounds + 1):
            world.Barrier()
            start = time.perf_counter()
            for _ in range(calls):
                world.Allreduce(MPI.IN_PLACE, array)
            if turn > 0:
                times.append((time.perf_counter() - start) / calls)
        results.append({"peer": "Open MPI", "bytes": size, "seconds": statistics.median(times)})
    if world.Get_rank() == 0:
        print("RESULT " + json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
