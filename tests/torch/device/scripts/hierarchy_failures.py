"""Reductions in stages that cannot go on: groups that are left early, made anew, or lose a rank."""

import os
import time
from typing import Any

import hierarchy
import pytest
import ranks
import teststream
import torch
import torch.distributed as dist

from slipstream.errors import PeerError
from slipstream.torch.cuda.kinds import KINDS

COUNT = 33_331  # float32 values: enough for stages, and not divisible by the ranks of a host
END_SECONDS = 20.0  # far more than it takes


def check_two_orders(rank: int) -> None:
    """Ranks that use two groups in different orders do not wait for one another for ever."""
    groups: list[Any] = [dist.group.WORLD, dist.new_group()]
    for group in groups:
        dist.all_reduce(torch.ones(COUNT, device=ranks.DEVICE), group=group)
    streams = [teststream.Stream(), teststream.Stream()]
    begun = []
    for number in ((0, 1), (1, 0))[rank % 2] * 2:
        with streams[number]:
            exact, encoded = (torch.full((COUNT,), 2.0, device=ranks.DEVICE) for _ in range(2))
            works = (
                dist.all_reduce(exact, group=groups[number], async_op=True),
                groups[number].average_encoded(encoded, "bf16"),
            )
            begun.append((exact, encoded, works))
    for exact, encoded, works in begun:
        for work in works:
            work.wait()
        assert exact.eq(2.0 * dist.get_world_size()).all().item()
        assert encoded.eq(2.0).all().item()
    dist.destroy_process_group(groups[1])


def check_one_rank_without(rank: int) -> None:
    """If the setting of one rank forbids stages, no rank uses them."""
    before = hierarchy.num_calls()
    tensor = torch.ones(COUNT, device=ranks.DEVICE)
    dist.all_reduce(tensor)
    assert tensor.eq(dist.get_world_size()).all().item()
    assert hierarchy.num_calls() == before


def check_left_early(aborts: bool) -> None:
    """Nobody waits for reductions before their group ends; its memory is not used too early."""
    tensors = [torch.ones(COUNT - COUNT % 2, device=ranks.DEVICE) for _ in range(6)]
    group: Any = dist.new_group()
    dist.all_reduce(tensors[0], group=group)
    dist.barrier()
    for tensor in tensors:
        dist.all_reduce(tensor, group=group, async_op=True)
    del tensors, tensor
    if aborts:
        dist.barrier()
        group.abort()
    dist.destroy_process_group(group)
    others = [torch.full((COUNT - COUNT % 2,), 7.0, device=ranks.DEVICE) for _ in range(6)]
    teststream.synchronize()
    assert all(other.eq(7).all().item() for other in others)
    assert hierarchy.connected[-1].ends == ["aborted" if aborts else "closed"]


def check_lost_rank(rank: int, size: int) -> None:
    """Rank 3 dies. Rank 2 is on its host; ranks 0 and 1 are not, and rank 0 has no part of it."""
    last = size - 1
    tensors = [torch.ones(COUNT, device=ranks.DEVICE) for _ in range(3)]
    dist.all_reduce(tensors[0])
    teststream.synchronize()
    if rank == last:
        time.sleep(0.2)
        os._exit(0)
    begin = time.monotonic()
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    teststream.synchronize()
    assert time.monotonic() - begin < END_SECONDS
    with pytest.raises(PeerError, match=f"rank {last}"):
        dist.all_reduce(tensors[0])
    del works
    assert hierarchy.connected[-1].ends == ["aborted"]


def start_again() -> None:
    """Leave the default group, and make a new one in the same store."""
    dist.destroy_process_group()
    dist.init_process_group(ranks.BACKEND)


def main() -> None:
    """Run every case."""
    rank = int(os.environ["RANK"])
    os.environ["SLIPSTREAM_HOST_ID"] = f"host {rank // hierarchy.LOCAL}"
    os.environ["SLIPSTREAM_CUDA_HIERARCHY"] = "off" if rank == 1 else "auto"
    _, size = ranks.start()
    KINDS[teststream.NAME] = KINDS[teststream.NAME]._replace(
        identity=lambda _: f"device of {rank}".encode(),
        local_name="ordered",
        connect=hierarchy.connect,
    )
    check_one_rank_without(rank)
    os.environ["SLIPSTREAM_CUDA_HIERARCHY"] = "auto"
    start_again()
    check_two_orders(rank)
    check_left_early(aborts=False)
    check_left_early(aborts=True)
    start_again()
    check_lost_rank(rank, size)
    ranks.finish()


if __name__ == "__main__":
    main()
