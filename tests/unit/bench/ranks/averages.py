"""Two ranks replay three steps over gloo, and check that .grad holds the mean of both ranks."""

import torch
import torch.distributed as dist

from slipstream.bench.models import ModelLayer, Parameter, ReplayModel
from slipstream.bench.replay.device import TimedDevice
from slipstream.bench.replay.module import ReplayModule
from slipstream.bench.replay.strategies import STRATEGIES

TOLERANCE = {"ddp": 1e-6, "ddp-fp16": 1e-3}


def tiny() -> ReplayModel:
    layers = [
        ModelLayer(
            name=f"layer{index}",
            parameters=(Parameter(name=f"weight{index}", shape=(300, 1000)),),
            flops=1,
        )
        for index in range(3)
    ]
    return ReplayModel(name="tiny", layers=tuple(layers), batch=1, sample="a number")


def filled(rank: int) -> ReplayModule:
    return ReplayModule(tiny(), TimedDevice(), 0.003, seed=rank)


def check(strategy: str) -> None:
    module = filled(dist.get_rank())
    mean = [
        (first.grad + second.grad) / 2
        for first, second in zip(filled(0).parameters(), filled(1).parameters(), strict=True)
    ]
    step = STRATEGIES[strategy](module)
    for _ in range(3):
        step()
    for parameter, expected in zip(module.parameters(), mean, strict=True):
        torch.testing.assert_close(
            parameter.grad, expected, rtol=TOLERANCE[strategy], atol=TOLERANCE[strategy]
        )
        assert parameter.abs().max() > 0
    print(f"{strategy}: as the mean")


dist.init_process_group("gloo")
for name in TOLERANCE:
    check(name)
dist.destroy_process_group()
