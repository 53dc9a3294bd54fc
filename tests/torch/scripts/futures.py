"""Futures: what their callbacks may do, and what may go wrong in them.

torchrun --nproc-per-node 2 futures.py
"""

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile


def total() -> float:
    """Returns the sum over all ranks of rank + 1."""
    return sum(range(1, dist.get_world_size() + 1))


def mine(count: int = 1000) -> torch.Tensor:
    return torch.full((count,), dist.get_rank() + 1.0)


def check_profiled_future() -> None:
    """The profiler's range and the future of one operation both end."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        works = [dist.all_reduce(mine(50000), async_op=True) for _ in range(4)]
        futures = [work.get_future() for work in works]
        for work, future in zip(works, futures, strict=True):
            work.wait()
            assert future.wait()[0].eq(total()).all()
    ranges = [event for event in recorded.events() if event.name == "slipstream:all_reduce"]
    assert len(ranges) == len(works), [event.name for event in recorded.events()]


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    checks: list[Callable[[], None]] = [check_profiled_future]
    for check in checks:
        check()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
