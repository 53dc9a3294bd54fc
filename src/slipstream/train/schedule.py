"""Learning-rate schedules for training with many workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

import slipstream.horovod.torch as hvd
from slipstream.errors import UsageError


@dataclass(frozen=True, kw_only=True)  # without slots, because PyTorch's schedulers read __dict__
class SmoothExponentialDecay:
    """Factor of the learning rate, which first rises to the number of workers and then decays.

    With n workers, w warm-up steps, s decay steps and decay rate d, the factor in step t (counted
    from 0) is

        t < w:  1 + (n - 1) t / w
        else:   n d^((t - w) / s)

    If the batch is n times as large, the learning rate should be n times as large, too (the linear
    scaling rule). Such a large learning rate needs a warm-up (Goyal et al., 2017, arXiv
    1706.02677).

    Args:
        workers: Number of workers that train together, 1 or more.
        warmup_steps: Number of steps in which the factor rises, 0 or more.
        decay_steps: Number of steps after which the factor has been multiplied by `decay_rate`, 1
            or more.
        decay_rate: Factor of the decay, above 0 and at most 1.
    """

    workers: int
    warmup_steps: int
    decay_steps: int
    decay_rate: float

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in (("workers", 1), ("warmup_steps", 0), ("decay_steps", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: {least} and more")
        if not 0 < self.decay_rate <= 1:
            raise UsageError(f"decay_rate is {self.decay_rate}; allowed: above 0, at most 1")

    def __call__(self, step: int) -> float:
        """Return the factor by which the learning rate of one worker is multiplied.

        Args:
            step: Index of the step, counted from 0.
        """
        if step < self.warmup_steps:
            return 1 + (self.workers - 1) * step / self.warmup_steps
        num_decays = (step - self.warmup_steps) / self.decay_steps
        return self.workers * self.decay_rate**num_decays


def smooth_exponential_decay(
    optimizer: Optimizer,
    *,
    warmup_steps: int,
    decay_steps: int,
    decay_rate: float = 0.9,
    workers: int | None = None,
) -> Any:
    """Return a learning-rate scheduler; call its step() after each optimizer.step().

    Args:
        optimizer: Optimizer with the learning rate for one worker.
        warmup_steps: Number of steps in which the rate rises, 0 or more.
        decay_steps: Number of steps after which the rate has been multiplied by `decay_rate`, 1 or
            more.
        decay_rate: Factor of the decay, above 0 and at most 1 (default 0.9).
        workers: Number of workers that train together (default: number of ranks of the job; 1
            without a job).

    Raises:
        UsageError: A value is not allowed.
    """
    if workers is None:
        workers = hvd.size() if hvd.is_initialized() else 1
    factor = SmoothExponentialDecay(
        workers=workers,
        warmup_steps=warmup_steps,
        decay_steps=decay_steps,
        decay_rate=decay_rate,
    )
    return LambdaLR(optimizer, factor)
