"""Collectives on the device in callbacks of futures, which NCCL's futures run in program order."""

import pytest
import ranks
import torch
import torch.distributed as dist


def check_callbacks_of_the_device(rank: int, size: int) -> None:
    """Callbacks of the device's futures run at once, so collectives in them keep their order."""
    tensors = [torch.full((1000 + i,), float(rank + i), device=ranks.DEVICE) for i in range(10)]
    for i, tensor in enumerate(tensors):
        ranks.keep_busy()
        first = torch.ones(10, device=ranks.DEVICE)
        work = dist.all_reduce(first, async_op=True)
        work.get_future().then(lambda _, own=tensor: dist.all_reduce(own))
        dist.all_reduce(first)
        assert first.cpu().eq(size * size).all(), i
    for i, tensor in enumerate(tensors):
        assert tensor.cpu().eq(sum(each + i for each in range(size))).all(), i


def check_callbacks_of_the_cpu() -> None:
    """Callbacks of the CPU's futures run at other times on each rank, so streams would deadlock."""
    tensor = torch.ones(10, device=ranks.DEVICE)
    future = dist.all_reduce(torch.ones(300_000), async_op=True).get_future()
    following = future.then(lambda _: dist.all_reduce(tensor))
    with pytest.raises(RuntimeError, match="in a callback of a future of the CPU"):
        following.wait()
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(dist.get_world_size()).all()


def main() -> None:
    """Run all checks."""
    rank, size = ranks.start()
    check_callbacks_of_the_device(rank, size)
    check_callbacks_of_the_cpu()
    ranks.finish()


if __name__ == "__main__":
    main()
