"""DDP's own communication hooks, with which peers send fewer bytes."""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.nn.parallel import DistributedDataParallel

# Rank of PowerSGD's matrices, as in table 3 of its paper (Vogels et al., 2019, arXiv 1905.13727).
POWER_SGD_RANK = 2
POWER_SGD_START = 2  # least number of steps without compression that its memory of errors allows


def add_fp16(model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    """Let a model send gradients as fp16."""
    model.register_comm_hook(group, default_hooks.fp16_compress_hook)


def add_bf16(model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    """Let a model send gradients as bf16."""
    model.register_comm_hook(group, default_hooks.bf16_compress_hook)


def add_power_sgd(model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    """Let a model send matrices of low rank instead of gradients."""
    state = power_sgd.PowerSGDState(
        process_group=group,
        matrix_approximation_rank=POWER_SGD_RANK,
        start_powerSGD_iter=POWER_SGD_START,
    )
    model.register_comm_hook(state, power_sgd.powerSGD_hook)


HOOKS: Mapping[str, Callable[[DistributedDataParallel, dist.ProcessGroup], None]] = {
    "fp16": add_fp16,
    "bf16": add_bf16,
    "powersgd": add_power_sgd,
}
