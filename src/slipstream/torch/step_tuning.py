"""Tuning for scripts that keep DistributedDataParallel."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.optim import Optimizer

from slipstream.comm.tuning import Tuning
from slipstream.torch.process_group import own_group


def tune(optimizer: Optimizer, *, group: dist.ProcessGroup | None = None) -> Tuning:
    """Tune algorithms and segments while training; `overlap` does so by itself.

    The group's allreduces are computed and cut in several ways for a few steps each, and what makes
    steps shortest stays. Sums may differ in their last bits meanwhile, by the order of additions;
    SLIPSTREAM_DETERMINISTIC=1 forbids that.

    Args:
        optimizer: Optimizer whose steps are the training steps; it must make the same number on all
            ranks.
        group: Process group that averages gradients, which must be Slipstream's (default: the
            world).

    Returns:
        What was chosen (`choice`) and why (`news`).

    Raises:
        UsageError: the group is another backend's.
    """
    tuning = own_group(dist.group.WORLD if group is None else group).make_tuning()

    def after_step(*_: Any) -> None:
        tuning.step()

    optimizer.register_step_post_hook(after_step)
    return tuning
