"""SLIPSTREAM_CUDA_WAIT=host: wait() blocks until the results are there, and raises at once."""

import os
import time

import pytest
import ranks
import teststream
import torch
import torch.distributed as dist

from slipstream.errors import PeerError

LATE_SECONDS = 0.2


def check_wait_blocks(rank: int, size: int) -> None:
    """A wait takes as long as the slowest rank, whether the call is asynchronous or not."""
    for async_op in (False, True):
        tensor = torch.full((1000,), float(rank), device=ranks.DEVICE)
        dist.barrier()
        if rank == 0:
            time.sleep(LATE_SECONDS)
        begin = time.monotonic()
        work = dist.all_reduce(tensor, async_op=async_op)
        if async_op:
            work.wait()
        assert rank == 0 or time.monotonic() - begin > LATE_SECONDS / 2
        assert tensor.eq(sum(range(size))).all().item()


def check_wait_raises(rank: int, size: int) -> None:
    """The wait for a rank that has died raises, not only the next call."""
    last = size - 1
    tensor = torch.ones(1000, device=ranks.DEVICE)
    if rank == last:
        time.sleep(LATE_SECONDS)
        os._exit(0)
    work = dist.all_reduce(tensor, async_op=True)
    with pytest.raises(PeerError, match=f"rank {last}"):
        work.wait()
    teststream.synchronize()


def main() -> None:
    """Run all checks."""
    os.environ["SLIPSTREAM_CUDA_WAIT"] = "host"
    rank, size = ranks.start()
    check_wait_blocks(rank, size)
    check_wait_raises(rank, size)
    ranks.finish()


if __name__ == "__main__":
    main()
