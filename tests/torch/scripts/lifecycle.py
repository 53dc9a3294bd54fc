"""A group is made and destroyed many times in one process, and leaves nothing behind.

torchrun --nproc-per-node 2 lifecycle.py
"""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

LIVES = 20
SETTLED = 5  # lives after which nothing may grow
LAST_SECONDS = 10.0


# One for all lives, also because PyTorch's needs five seconds for every 25th connection or so.
store, rank, size = next(rendezvous("env://"))


def init() -> None:
    """Make the default group again, on the store of the earlier one."""
    backend = os.environ.get("BACKEND", "slipstream")
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


def count(kind: str) -> int:
    """Return the number of descriptors ("fd") or threads ("task") of this process."""
    return len(os.listdir(f"/proc/self/{kind}"))


def check_threads_end(before: int) -> None:
    """Check that threads have ended; the kernel takes a moment to forget one that was joined."""
    deadline = time.monotonic() + LAST_SECONDS
    while count("task") > before:
        assert time.monotonic() < deadline, threading.enumerate()


def one_life() -> None:
    """Use two groups, works that nobody waits for, and a future."""
    init()
    group = dist.new_group()
    forgotten = torch.ones(1000)
    dist.all_reduce(forgotten, async_op=True)
    value = torch.ones(1000)
    future = dist.all_reduce(value, group=group, async_op=True).get_future()
    future.wait()
    assert value.eq(size).all()
    dist.destroy_process_group()
    assert forgotten.eq(size).all()


def check_leaving_at_once() -> None:
    """Check that a rank may leave after its part of the last operation, which others still need."""
    for length in (100, 2500, 50000):
        init()
        for root in range(size):
            value = torch.full((length,), float(rank))
            dist.broadcast(value, src=root)
            assert value.eq(root).all()
        dist.destroy_process_group()


def check_buffers_outlive_their_tensors() -> None:
    """Memory that the engine still uses is not given away when the caller drops everything."""
    init()
    for _ in range(50):
        dist.all_reduce(torch.full((50000,), 7.0), async_op=True)
        other = torch.zeros(50000)
        assert not other.any()
    dist.destroy_process_group()


def main() -> None:
    threads = count("task")
    seen: list[int] = []
    for _ in range(LIVES):
        one_life()
        seen.append(count("fd"))
    assert seen[-1] <= seen[SETTLED], seen
    check_threads_end(threads)
    check_leaving_at_once()
    check_buffers_outlive_their_tensors()


if __name__ == "__main__":
    main()
