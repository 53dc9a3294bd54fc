"""Tuning of collectives for scripts that use DistributedDataParallel."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.optim import Optimizer

from slipstream.comm.tuning import Tuning
from slipstream.torch.process_group import own_group


def tune(optimizer: Optimizer, *, group: dist.ProcessGroup | None = None) -> Tuning:
    """Tune the algorithm and the segment size of allreduces during training.

    `overlap` tunes collectives without this function. For a few steps, the group's allreduces use
    each setting; then they use the setting with the shortest steps. During the tuning, sums may
    differ in their last bits, because the order of the additions differs. If
    SLIPSTREAM_DETERMINISTIC is 1, nothing is tuned.

    Args:
        optimizer: Optimizer whose steps are the training steps; it must make the same number of
            steps on all ranks.
        group: Process group over which gradients are averaged, which must be a group of Slipstream
            (default: the group of all ranks).

    Returns:
        The tuning. Its `choice` has the values in use, and its `news` has a sentence about each
        change of a value, with the reason.

    Raises:
        UsageError: The group belongs to another backend.
    """
    tuning = own_group(dist.group.WORLD if group is None else group).make_tuning()

    def after_step(*_: Any) -> None:
        tuning.step()

    optimizer.register_step_post_hook(after_step)
    return tuning
