"""Trains a small model on all ranks, and tells when the first step is done."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Run two steps."""
    torch.set_num_threads(1)
    dist.init_process_group("slipstream")
    model = DistributedDataParallel(torch.nn.Linear(1000, 100))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.ones(8, 1000)).sum().backward()
        optimizer.step()
        print(f"step {step} done", flush=True)
    dist.destroy_process_group()


main()
