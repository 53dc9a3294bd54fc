"""The same as meet.py in an ordinary PyTorch script, which knows nothing of launchers."""

import os

import torch
import torch.distributed as dist

from slipstream.settings import detect_launcher


def main() -> None:
    """Meet, and print what the launcher said."""
    source = detect_launcher().source
    dist.init_process_group("slipstream")
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{size} local {os.environ['LOCAL_RANK']} from {source}")
    came = torch.zeros(size, dtype=torch.int64)
    came[rank] = rank + 1
    dist.all_reduce(came)
    if rank == 0:
        print("met", *(came - 1).tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
