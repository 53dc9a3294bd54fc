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


def check_nested_wait() -> None:
    """A callback may wait for another operation: its work, its future, and what `then` makes."""
    size = dist.get_world_size()

    def nested(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        (value,) = dist.all_reduce(future.value()[0], async_op=True).get_future().wait()
        dist.all_reduce(value, async_op=True).wait()
        again = dist.all_reduce(value, async_op=True).get_future()
        return again.then(lambda inner: inner.value()[0] * 2).wait()

    for count in (1, 300000):
        future = dist.all_reduce(mine(count), async_op=True).get_future().then(nested)
        assert future.wait().eq(2 * total() * size**3).all()


def check_wait_for_earlier_future() -> None:
    """A callback may wait for a future that was asked for outside of it."""
    group = dist.new_group()
    if dist.get_rank() != 0:
        dist.all_reduce(mine())
        dist.all_reduce(mine(), group=group)
        return
    later = dist.all_reduce(mine(), group=group, async_op=True).get_future()
    sooner = dist.all_reduce(mine(), async_op=True).get_future()
    both = sooner.then(lambda future: future.value()[0] + later.wait()[0])
    assert both.wait().eq(2 * total()).all()


def check_nested_under_profiler() -> None:
    """The profiler's ranges end too where a callback waits."""
    with profile(activities=[ProfilerActivity.CPU]):

        def nested(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            value = future.value()[0]
            dist.all_reduce(value, async_op=True).wait()
            return dist.all_reduce(value, async_op=True).get_future().wait()[0]

        future = dist.all_reduce(mine(), async_op=True).get_future().then(nested)
        assert future.wait().eq(total() * dist.get_world_size() ** 2).all()


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    checks: list[Callable[[], None]] = [
        check_profiled_future,
        check_nested_wait,
        check_wait_for_earlier_future,
        check_nested_under_profiler,
    ]
    for check in checks:
        check()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
