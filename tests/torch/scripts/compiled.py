"""torch.compile around what calls collectives: models under DDP, and functions.

slipstream run -n 2 compiled.py
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BACKEND = "eager"  # what is traced is the same, and no compiler of C++ is started


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def compiled_in_place() -> nn.Module:
    model = DistributedDataParallel(net())
    model.compile(backend=BACKEND)
    return model


FORMS: dict[str, Callable[[], Any]] = {
    "inside": lambda: DistributedDataParallel(torch.compile(net(), backend=BACKEND)),
    "outside": lambda: torch.compile(DistributedDataParallel(net()), backend=BACKEND),
    "in place": compiled_in_place,
}


def check_ddp(form: str) -> None:
    """Check that the gradients are those of the model that is not compiled."""
    torch._dynamo.reset()
    model, plain = FORMS[form](), DistributedDataParallel(net())
    for step in range(3):
        inputs = torch.randn(4, 16) + dist.get_rank() + step
        for each in (model, plain):
            each.zero_grad()
            each(inputs).square().sum().backward()
        for found, wanted in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(found.grad, wanted.grad)


def check_function() -> None:
    """Check collectives that PyTorch turns into functions, and those that break the graph."""
    torch._dynamo.reset()

    def summed(tensor: torch.Tensor) -> torch.Tensor:
        total = tensor * 2
        dist.all_reduce(total)
        work = dist.all_reduce(total, async_op=True)
        if work is not None:
            work.wait()
        dist.broadcast(total, 0)
        return total + 1

    tensor = torch.arange(4.0) + dist.get_rank()
    size = dist.get_world_size()
    wanted = 2 * (size * torch.arange(4.0) + sum(range(size))) * size + 1
    torch.testing.assert_close(summed(tensor.clone()), wanted)
    found = torch.compile(summed, backend=BACKEND)(tensor.clone())
    torch.testing.assert_close(found, wanted)


def main() -> None:
    dist.init_process_group("slipstream")
    for form in FORMS:
        check_ddp(form)
    check_function()
    dist.barrier()
    dist.destroy_process_group()


main()
