"""Futures: what their callbacks may do, and what may go wrong in them.

torchrun --nproc-per-node 2 futures.py
"""

import functools
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile


def total() -> float:
    """Return the sum over all ranks of rank + 1."""
    return sum(range(1, dist.get_world_size() + 1))


def mine(count: int = 1000) -> torch.Tensor:
    return torch.full((count,), dist.get_rank() + 1.0)


def check_profiled_future() -> None:
    """Check that the profiler's range and the future of one operation both end."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        works = [dist.all_reduce(mine(50000), async_op=True) for _ in range(4)]
        futures = [work.get_future() for work in works]
        for work, future in zip(works, futures, strict=True):
            work.wait()
            assert future.wait()[0].eq(total()).all()
    ranges = [event for event in recorded.events() if event.name == "slipstream:all_reduce"]
    assert len(ranges) == len(works), [event.name for event in recorded.events()]


def check_nested_wait() -> None:
    """Check that a callback may wait for another operation: its work, its future, and `then`."""
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
    """Check that a callback may wait for a future that was requested outside of it."""
    group = dist.new_group()
    if dist.get_rank() != 0:
        dist.all_reduce(mine())
        dist.all_reduce(mine(), group=group)
        return
    later = dist.all_reduce(mine(), group=group, async_op=True).get_future()
    sooner = dist.all_reduce(mine(), async_op=True).get_future()
    both = sooner.then(lambda future: future.value()[0] + later.wait()[0])
    assert both.wait().eq(2 * total()).all()


def check_order() -> None:
    """Check that callbacks run in the order of the program, apart from its collectives."""
    size, ran = dist.get_world_size(), []

    def nested(number: int, future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        ran.append(number)
        value = future.value()[0][:10] * number
        dist.all_reduce(value)
        return value

    futures = []
    for number in range(20):
        work = dist.all_reduce(mine(300000 if number % 3 == 0 else 10), async_op=True)
        futures.append(work.get_future().then(functools.partial(nested, number)))
    for number, future in enumerate(futures):
        assert future.wait().eq(total() * number * size).all()
    assert ran == list(range(20)), ran


def check_nested_under_profiler() -> None:
    """Check that the profiler's ranges end even if a callback waits."""
    with profile(activities=[ProfilerActivity.CPU]):

        def nested(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            value = future.value()[0]
            dist.all_reduce(value, async_op=True).wait()
            return dist.all_reduce(value, async_op=True).get_future().wait()[0]

        future = dist.all_reduce(mine(), async_op=True).get_future().then(nested)
        assert future.wait().eq(total() * dist.get_world_size() ** 2).all()


def check_inference_mode() -> None:
    """Check results in tensors that were made in inference mode and are not contiguous."""
    with torch.inference_mode():
        strided = mine(1000).view(20, 50).t()
    dist.all_reduce(strided, async_op=True).get_future().wait()
    assert strided.eq(total()).all()
    dist.all_reduce(strided)
    assert strided.eq(total() * dist.get_world_size()).all()


def check_unwritable_output() -> None:
    """Check that an output that cannot be written fails its future and no other."""
    is_first = dist.get_rank() == 0
    # Its elements are one, and the results differ.
    output = torch.ones(1).expand(1000) if is_first else torch.arange(1000.0)
    work = dist.all_reduce(output, async_op=True)
    following = dist.all_reduce(mine(), async_op=True).get_future()
    for wait in (work.get_future().wait, work.wait):
        refused = False
        try:
            wait()
        except RuntimeError as error:
            refused = "repeats its elements" in str(error)
        assert refused == is_first
    assert following.wait()[0].eq(total()).all()
    value = mine()
    dist.all_reduce(value)
    assert value.eq(total()).all()


def check_failing_callback() -> None:
    """Check that a callback that raises an error disturbs no other."""
    for _ in range(3):
        future = dist.all_reduce(mine(), async_op=True).get_future()
        future.add_done_callback(lambda done: 1 / 0)
        failed = future.then(lambda done: 1 / 0)
        refused = False
        try:
            failed.wait()
        except RuntimeError as error:
            refused = "ZeroDivisionError" in str(error)
        assert refused
        assert future.wait()[0].eq(total()).all()


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    checks: list[Callable[[], None]] = [
        check_profiled_future,
        check_nested_wait,
        check_wait_for_earlier_future,
        check_order,
        check_nested_under_profiler,
        check_inference_mode,
        check_unwritable_output,
        check_failing_callback,
    ]
    for check in checks:
        check()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
