"""A script for one process, made data-parallel by one line.

slipstream run -n 2 hvd_replicated.py
"""

import os

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")

import pytest
import torch
from torch import nn

import slipstream.horovod.torch as hvd
from slipstream.errors import UsageError
from slipstream.train import (
    ReplicatedVarsOptimizer,
    SmoothExponentialDecay,
    smooth_exponential_decay,
)

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def rows(step: int, rank: int) -> torch.Tensor:
    torch.manual_seed(100 * step + rank)
    return torch.randn(4, 3)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, ranks: list[int]) -> None:
    for step in range(5):
        optimizer.zero_grad()
        for rank in ranks:
            (model(rows(step, rank)).square().mean() / len(ranks)).backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(RANK)  # other weights on each rank
    model = nn.Linear(3, 2)
    optimizer = ReplicatedVarsOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    train(model, optimizer, [RANK])
    torch.manual_seed(0)
    expected = nn.Linear(3, 2)
    train(expected, torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9), list(range(SIZE)))
    torch.testing.assert_close(model.weight, expected.weight)
    schedule = smooth_exponential_decay(optimizer, warmup_steps=4, decay_steps=2, decay_rate=0.5)
    rates: list[float] = []
    for _ in range(9):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    schedule.load_state_dict(schedule.state_dict())
    rising = [0.1 * (1 + (SIZE - 1) * step / 4) for step in range(4)]
    falling = [0.1 * SIZE * 0.5 ** (step / 2) for step in range(5)]
    assert rates == pytest.approx([*rising, *falling])
    with pytest.raises(UsageError, match="decay_rate is 2"):
        SmoothExponentialDecay(workers=1, warmup_steps=0, decay_steps=1, decay_rate=2)
    hvd.shutdown()


main()
