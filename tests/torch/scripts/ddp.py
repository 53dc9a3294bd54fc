"""DistributedDataParallel equals one process that trains on the whole batch.

torchrun --nproc-per-node 2 ddp.py        (BACKEND=gloo to compare)
"""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
ROWS_PER_RANK = 4


class Net(nn.Module):
    """Two branches, of which a step may use one; a buffer that rank 0 owns."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.branch = nn.ModuleList([nn.Linear(32, 1), nn.Linear(32, 1)])
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, rows: torch.Tensor, branch: int) -> torch.Tensor:
        self.steps += 1
        return self.branch[branch](self.body(rows)).square().mean()


def train(model: nn.Module, batches: list[torch.Tensor]) -> None:
    """Train with momentum; step i uses branch i modulo 2."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        model(batch, step % 2).backward()
        optimizer.step()


def check_training(**options: object) -> None:
    """Compare parameters after training with DDP and with one process."""
    torch.manual_seed(7)
    reference = Net()
    model = copy.deepcopy(reference)
    if dist.get_rank() != 0:
        nn.init.zeros_(model.body[0].weight)  # DDP must bring rank 0's values here
    batches = torch.randn(STEPS, dist.get_world_size(), ROWS_PER_RANK, 32).unbind()
    train(reference, [batch.flatten(0, 1) for batch in batches])
    wrapped = DistributedDataParallel(model, find_unused_parameters=True, **options)
    train(wrapped, [batch[dist.get_rank()] for batch in batches])
    torch.testing.assert_close(model.state_dict(), reference.state_dict(), rtol=1e-5, atol=1e-6)


def check_accumulation() -> None:
    """Check that two micro-batches under no_sync and one without give the gradient of all three."""
    torch.manual_seed(8)
    reference = Net()
    wrapped = DistributedDataParallel(copy.deepcopy(reference), find_unused_parameters=True)
    batches = torch.randn(3, dist.get_world_size(), ROWS_PER_RANK, 32)
    for batch in batches:
        reference(batch.flatten(0, 1), 0).backward()
    with wrapped.no_sync():
        for batch in batches[:2]:
            wrapped(batch[dist.get_rank()], 0).backward()
    wrapped(batches[2, dist.get_rank()], 0).backward()
    wanted = reference.body[0].weight.grad
    torch.testing.assert_close(wrapped.module.body[0].weight.grad, wanted, rtol=1e-5, atol=1e-6)


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    check_training()
    check_training(gradient_as_bucket_view=True, bucket_cap_mb=0.01)
    check_accumulation()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
