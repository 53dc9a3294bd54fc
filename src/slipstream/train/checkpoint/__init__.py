"""Checkpoints of a training: written beside it, whole or not there, read by any number of ranks.

    from slipstream.train.checkpoint import Checkpointer

    checkpointer = Checkpointer("checkpoints")
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    first = checkpointer.restore(state) or 0
    for step in range(first + 1, 10_001):
        train(step)
        if step % 500 == 0:
            checkpointer.save(step, state)
    checkpointer.wait()

`dcp` reads and writes these checkpoints by torch.distributed.checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy
from slipstream.train.checkpoint.damage import CheckpointError as CheckpointError

if TYPE_CHECKING:
    from slipstream.train.checkpoint.catalog import Checkpoint as Checkpoint
    from slipstream.train.checkpoint.catalog import list_checkpoints as list_checkpoints
    from slipstream.train.checkpoint.checkpointer import Checkpointer as Checkpointer
    from slipstream.train.checkpoint.storage import open_storage as open_storage
    from slipstream.train.checkpoint.tree import PerRank as PerRank

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Checkpointer",
    "PerRank",
    "list_checkpoints",
    "open_storage",
]

# The list of checkpoints needs no PyTorch, which takes a second to import.
__getattr__ = lazy.attributes(
    "slipstream.train.checkpoint",
    "torch",
    {
        "Checkpoint": "slipstream.train.checkpoint.catalog:Checkpoint",
        "Checkpointer": "slipstream.train.checkpoint.checkpointer:Checkpointer",
        "PerRank": "slipstream.train.checkpoint.tree:PerRank",
        "list_checkpoints": "slipstream.train.checkpoint.catalog:list_checkpoints",
        "open_storage": "slipstream.train.checkpoint.storage:open_storage",
    },
)
