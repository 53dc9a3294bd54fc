"""Learning-rate schedules for many workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

import slipstream.horovod.torch as hvd
from slipstream.errors import UsageError


@dataclass(frozen=True, kw_only=True)  # schedulers read __dict__, so there are no slots
class SmoothExponentialDecay:
    """A factor for the learning rate, which rises to the number of workers and then decays.

    With n workers, w steps of warm-up, s decay steps and decay rate d, the factor in step t (from
    0) is

        t < w:  1 + (n - 1) t / w
        else:   n d^((t - w) / s)

    A batch n times as large takes a learning rate n times as large (the linear scaling rule), which
    needs a warm-up (Goyal et al., 2017, arXiv 1706.02677).

    Args:
        workers: Number of workers that train together, 1 or more.
        warmup_steps: Number of steps of the rise, 0 or more.
        decay_steps: Number of steps in which the rate is multiplied by `decay_rate`, 1 or more.
        decay_rate: Factor of the decay, above 0 and at most 1.
    """

    workers: int
    warmup_steps: int
    decay_steps: int
    decay_rate: float

    def __post_init__(self) -> None:
        """Raise an error for values that are not allowed."""
        for name, least in (("workers", 1), ("warmup_steps", 0), ("decay_steps", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: {least} and more")
        if not 0 < self.decay_rate <= 1:
            raise UsageError(f"decay_rate is {self.decay_rate}; allowed: above 0, at most 1")

    def __call__(self, step: int) -> float:
        """Return the factor on the learning rate of one worker.

        Args:
            step: Number of the step, 0 or more.
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
    """Return a scheduler of the learning rate; call its step() after each optimizer.step().

    Args:
        optimizer: Optimizer with the learning rate of one worker.
        warmup_steps: Number of steps of the rise, 0 or more.
        decay_steps: Number of steps in which the rate is multiplied by `decay_rate`, 1 or more.
        decay_rate: Factor of the decay, above 0 and at most 1 (default 0.9).
        workers: Number of workers that train together (default: all ranks of the job, or 1 without
            a job).

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
