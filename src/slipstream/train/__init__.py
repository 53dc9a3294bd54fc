"""Data-parallel training with two additional lines in a script for one process, as in PAISoar.

optimizer = ReplicatedVarsOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
schedule = smooth_exponential_decay(optimizer, warmup_steps=500, decay_steps=1000)

`slipstream.train.checkpoint` saves and restores trainings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy

if TYPE_CHECKING:
    from slipstream.train.replicated import ReplicatedVarsOptimizer as ReplicatedVarsOptimizer
    from slipstream.train.schedule import SmoothExponentialDecay as SmoothExponentialDecay
    from slipstream.train.schedule import smooth_exponential_decay as smooth_exponential_decay

__all__ = ["ReplicatedVarsOptimizer", "SmoothExponentialDecay", "smooth_exponential_decay"]

# PyTorch takes a second to import, and the list of checkpoints does without it.
__getattr__ = lazy.attributes(
    "slipstream.train",
    "torch",
    {
        "ReplicatedVarsOptimizer": "slipstream.train.replicated:ReplicatedVarsOptimizer",
        "SmoothExponentialDecay": "slipstream.train.schedule:SmoothExponentialDecay",
        "smooth_exponential_decay": "slipstream.train.schedule:smooth_exponential_decay",
    },
)
