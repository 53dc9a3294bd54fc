"""new_group: overlapping groups, their ranks, several at once, and a second life of the world.

torchrun --nproc-per-node 4 groups.py
"""

import itertools
import os

import torch
import torch.distributed as dist


def check_overlapping() -> None:
    """Sum, gather and broadcast in every subset of two or more ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    subsets = [
        list(members)
        for count in range(2, size + 1)
        for members in itertools.combinations(range(size), count)
    ]
    groups = [dist.new_group(members) for members in subsets]
    for members, group in zip(subsets, groups, strict=True):
        if rank not in members:
            assert dist.get_rank(group) == -1
            continue
        assert dist.get_rank(group) == members.index(rank)
        assert dist.get_process_group_ranks(group) == members
        total = torch.full((5,), float(rank))
        dist.all_reduce(total, group=group)
        torch.testing.assert_close(total, torch.full((5,), float(sum(members))))
        gathered = [torch.empty(1, dtype=torch.int64) for _ in members]
        dist.all_gather(gathered, torch.tensor([rank]), group=group)
        assert [int(value) for value in gathered] == members
        root = members[-1]
        value = torch.tensor([float(rank)])
        dist.broadcast(value, src=root, group=group)
        assert value.item() == root
    for group in groups:
        dist.destroy_process_group(group)


def check_several_at_once() -> None:
    """Wait for operations of two groups of the same ranks in the other order."""
    rank, size = dist.get_rank(), dist.get_world_size()
    first, second = dist.new_group(), dist.new_group()
    ones, ranks = torch.ones(1000), torch.full((1000,), float(rank))
    order = [(ones, first), (ranks, second)] if rank % 2 else [(ranks, second), (ones, first)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in order]
    for work in reversed(works):
        work.wait()
    torch.testing.assert_close(ones, torch.full((1000,), float(size)))
    torch.testing.assert_close(ranks, torch.full((1000,), float(sum(range(size)))))


def check_subgroups() -> None:
    """Check that new_subgroups cuts the world into equal parts."""
    rank, size = dist.get_rank(), dist.get_world_size()
    part = 2 if size % 2 == 0 else size
    mine, _ = dist.new_subgroups(part)
    total = torch.tensor([rank])
    dist.all_reduce(total, group=mine)
    start = rank // part * part
    assert total.item() == sum(range(start, start + part))


def main() -> None:
    for _ in range(3):
        dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
        check_overlapping()
        check_several_at_once()
        check_subgroups()
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
