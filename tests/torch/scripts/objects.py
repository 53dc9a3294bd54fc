"""Object collectives carry Python objects of different sizes.

torchrun --nproc-per-node 2 objects.py
"""

import os
from typing import Any

import torch
import torch.distributed as dist


def object_of(rank: int) -> dict[str, Any]:
    """Return an object whose pickled size grows with the rank."""
    return {"rank": rank, "text": "x" * (1000 * rank + 1), "values": list(range(rank))}


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = [object_of(r) for r in range(size)]

    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, object_of(rank))
    assert gathered == everyone, gathered

    for root in range(size):
        target: list[Any] | None = [None] * size if rank == root else None
        dist.gather_object(object_of(rank), target, dst=root)
        assert target == (everyone if rank == root else None)

        shared = [object_of(root), root] if rank == root else [None, None]
        dist.broadcast_object_list(shared, src=root)
        assert shared == [object_of(root), root]

        mine: list[Any] = [None]
        dist.scatter_object_list(mine, everyone if rank == root else None, src=root)
        assert mine == [object_of(rank)]

    if rank == 0:
        dist.send_object_list(["tensor", torch.arange(5)], dst=size - 1)
    elif rank == size - 1:
        received: list[Any] = [None, None]
        dist.recv_object_list(received, src=0)
        assert received[0] == "tensor"
        assert torch.equal(received[1], torch.arange(5))

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
