"""A rank that dies: streams end, and the next call names the rank. Graphs: a clear error."""

import os
import time

import pytest
import ranks
import teststream
import torch
import torch.distributed as dist

from slipstream.errors import PeerError, UsageError

END_SECONDS = 20.0  # far more than it takes


def check_no_capture() -> None:
    """A collective cannot be captured into a graph, and the group still works afterwards."""
    tensor = torch.ones(10, device=ranks.DEVICE)
    with teststream.graph(), pytest.raises(UsageError, match="cannot be captured"):
        dist.all_reduce(tensor)
    dist.all_reduce(tensor)
    assert tensor.eq(dist.get_world_size()).all().item()


def check_a_dead_rank(rank: int, size: int) -> None:
    """The last rank dies in the middle of collectives that the others have called."""
    last = size - 1
    tensors = [torch.ones(1_300_001, device=ranks.DEVICE) for _ in range(3)]
    dist.all_reduce(tensors[0])
    teststream.synchronize()
    if rank == last:
        time.sleep(0.2)
        os._exit(0)
    begin = time.monotonic()
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    teststream.synchronize()
    assert time.monotonic() - begin < END_SECONDS
    assert all(tensor.isnan().any().item() for tensor in tensors)
    with pytest.raises(PeerError, match=f"rank {last}"):
        dist.all_reduce(tensors[0])


def main() -> None:
    """Run all checks."""
    rank, size = ranks.start()
    check_no_capture()
    check_a_dead_rank(rank, size)
    ranks.finish()


if __name__ == "__main__":
    main()
