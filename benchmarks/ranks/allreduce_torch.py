"""One rank: times allreduce through torch.distributed, gloo and Slipstream by turns."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

BACKENDS = ("gloo", "slipstream")


def time_once(tensor: torch.Tensor, group: dist.ProcessGroup, calls: int) -> float:
    """Returns the seconds of one call, as the mean of several in a row after a barrier."""
    dist.barrier(group)
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - start) / calls


def main() -> None:
    """Prints, on rank 0, the median seconds of each backend and size as one line of JSON."""
    sizes, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    results: list[dict[str, object]] = []
    for size in sizes:
        tensor = torch.zeros(size // 4)
        calls = max(3, min(200, 20_000_000 // size))
        times: dict[str, list[float]] = {name: [] for name in BACKENDS}
        for turn in range(rounds + 1):
            for name, group in groups.items():
                seconds = time_once(tensor, group, calls)
                if turn > 0:  # the first one warms up
                    times[name].append(seconds)
        for name, measured in times.items():
            results.append({"peer": name, "bytes": size, "seconds": statistics.median(measured)})
    if dist.get_rank() == 0:
        print("RESULT " + json.dumps(results), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["WORLD_SIZE"])))
    main()
