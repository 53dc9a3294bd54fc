"""DDP's communication hooks give the gradients of one process that sees the whole batch.

torchrun --nproc-per-node 2 hooks.py        (BACKEND=gloo to compare)
"""

import copy
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
WIDTH = 64


def check_hook(
    hook: Callable[[Any, Any], torch.futures.Future[torch.Tensor]],
    state: object,
    error: float,
    bucket_cap_mb: float = 100,
) -> None:
    """Compare the gradients of some steps, with a row of the batch per rank, to those of all rows.

    Args:
        hook: Hook to test.
        state: First argument of the hook.
        error: Largest error by compression that is allowed, relative to the largest gradient.
        bucket_cap_mb: Size of DDP's buckets in MB; a small one means one for each parameter.
    """
    torch.manual_seed(7)
    reference = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
    wrapped = DistributedDataParallel(copy.deepcopy(reference), bucket_cap_mb=bucket_cap_mb)
    wrapped.register_comm_hook(state, hook)
    for _ in range(STEPS):
        rows = torch.randn(dist.get_world_size(), WIDTH)
        for model, mine in ((reference, rows), (wrapped, rows[dist.get_rank()].unsqueeze(0))):
            model.zero_grad()
            model(mine).square().sum(1).mean().backward()
        for parameter, right in zip(wrapped.parameters(), reference.parameters(), strict=True):
            scale = float(right.grad.abs().max())
            torch.testing.assert_close(parameter.grad, right.grad, rtol=0, atol=error * scale)


def power_sgd() -> powerSGD_hook.PowerSGDState:
    """Return a state that loses nothing, because it has as many dimensions as the gradients."""
    return powerSGD_hook.PowerSGDState(
        None,
        matrix_approximation_rank=2 * dist.get_world_size(),
        start_powerSGD_iter=2,
        min_compression_rate=1,
    )


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    for bucket_cap_mb in (100, 0.001):
        check_hook(default_hooks.allreduce_hook, None, 1e-5, bucket_cap_mb)
        check_hook(default_hooks.fp16_compress_hook, None, 1e-2, bucket_cap_mb)
        check_hook(powerSGD_hook.powerSGD_hook, power_sgd(), 1e-3, bucket_cap_mb)
        check_hook(quantization_hooks.quantization_pertensor_hook, None, 8e-2, bucket_cap_mb)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
