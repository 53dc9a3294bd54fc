"""ZeroRedundancyOptimizer equals the plain optimizer, and its state can be gathered.

torchrun --nproc-per-node 2 zero.py
"""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS = 5
ROWS_PER_RANK = 4


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[torch.Tensor]) -> None:
    for batch in batches:
        optimizer.zero_grad()
        (model(batch) - 1).square().mean().backward()
        optimizer.step()


def check(parameters_as_bucket_view: bool) -> None:
    """Compare parameters, and the gathered optimizer state, with one process."""
    torch.manual_seed(7)
    reference = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 8), nn.Linear(8, 3))
    model = copy.deepcopy(reference)
    batches = torch.randn(STEPS, dist.get_world_size(), ROWS_PER_RANK, 16).unbind()
    plain = torch.optim.Adam(reference.parameters(), lr=0.01)
    train(reference, plain, [batch.flatten(0, 1) for batch in batches])
    sharded = ZeroRedundancyOptimizer(
        model.parameters(),
        optimizer_class=torch.optim.Adam,
        parameters_as_bucket_view=parameters_as_bucket_view,
        lr=0.01,
    )
    wrapped = DistributedDataParallel(model)
    train(wrapped, sharded, [batch[dist.get_rank()] for batch in batches])
    torch.testing.assert_close(model.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-6)
    sharded.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        found, wanted = sharded.state_dict()["state"], plain.state_dict()["state"]
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    check(parameters_as_bucket_view=False)
    check(parameters_as_bucket_view=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
