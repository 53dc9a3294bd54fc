"""State of training whose model or optimizer is divided among the ranks."""

from __future__ import annotations

import logging
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.horovod.torch.elastic import TorchState
from slipstream.train.checkpoint.checkpointer import Checkpointer
from slipstream.train.elastic.peer_copies import PeerCopies, ShardsLostError

_log = logging.getLogger(__name__)


class ShardedState(TorchState):
    """State of a training with FSDP2 (`fully_shard`) or `ZeroRedundancyOptimizer`.

        state = elastic.ShardedState(copies=1, sampler=sampler, epoch=0)

        @elastic.run
        def train(state):
            model = fully_shard(Network())
            optimizer = torch.optim.Adam(model.parameters())
            state.attach(model=model, optimizer=optimizer)
            while state.epoch < 10:
                ...
                state.commit()

    Each commit copies this rank's shards to the memory of its host, and sends them to other ranks.
    When ranks are lost, those that are left take the shards from the copies, divided anew. The
    memory of a host has two commits, so 2 (1 + copies) times the bytes of a rank's shards.

    Args:
        copies: Number of other ranks that keep a copy of each rank's shards, 0 or more (default 1).
            This many ranks may be lost at once, or one host, if ranks are on several hosts. Without
            copies, every lost rank leads back to the checkpoint.
        values: Further values by name: plain values, schedulers, and an ElasticSampler.

    Raises:
        UsageError: copies is negative, or a value is a module or an optimizer.
    """

    def __init__(self, copies: int = 1, **values: Any) -> None:
        if copies < 0:
            raise UsageError(f"copies is {copies}; allowed: 0 and more")
        for name, value in values.items():
            if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
                raise UsageError(
                    f"{name} is a {type(value).__name__}; pass it to attach(), which the function"
                    " of elastic.run calls after each change of the members"
                )
        super().__init__(**values)
        self._value_names = tuple(values)
        self._copies = PeerCopies(copies)
        self._parts: dict[str, Any] = {}
        self._had_parts = False

    def attach(self, *, checkpointer: Checkpointer | None = None, **parts: Any) -> None:
        """Set new models and optimizers to the last commit, and commit them from now on; blocks.

        All ranks call it at the begin of the function of `elastic.run`. At the start of a job,
        the objects stay as they are, or are set to the newest checkpoint.

        Args:
            checkpointer: Checkpoints of `whole()`, which are read at the start, and if the shards
                of a rank are lost with all their copies (default: none).
            parts: Models and optimizers by name, the same names on all ranks.

        Raises:
            UsageError: nothing is passed.
            ShardsLostError: the shards of a rank are lost, and there is no checkpoint.
            CheckpointError: no checkpoint can be restored.
            MismatchError: the commit has other tensors than the objects.
        """
        if not parts:
            raise UsageError("attach() got no objects; pass those that are sharded: model=model")
        self._parts = parts
        self._had_parts = True
        self._restore_parts(checkpointer)
        self._copies.keep(self.num_commits, parts)

    def whole(self) -> dict[str, Any]:
        """Return the state as `Checkpointer.save` takes it: what is attached, and all values."""
        plain = {name: getattr(self, name) for name in self._plain_names()}
        objects = {name: each.value for name, each in self._handlers.items()}
        return {**self._parts, "objects": objects, "values": plain}

    def save(self) -> None:
        """Keep the present state, and give other ranks copies of this rank's shards; blocks."""
        if self._had_parts and not self._parts:
            raise UsageError(
                "commit() comes before attach(); the function of elastic.run must attach the new"
                " model and optimizer first, each time when it is called"
            )
        if self._parts:
            self._copies.keep(self.num_commits + 1, self._parts)
        super().save()

    def forget_after(self, commit: int) -> None:
        """Forget the commits that other ranks do not have."""
        super().forget_after(commit)
        self._copies.forget_after(commit)

    def is_as_noted(self) -> bool:
        """Return False: shards are divided anew after a fault, so they come from a commit."""
        return False

    def on_reset(self) -> None:
        """Detach the models and optimizers of the last members."""
        self._parts = {}
        super().on_reset()

    def _restore_parts(self, checkpointer: Checkpointer | None) -> None:
        lost = ""
        try:
            if self._copies.restore(self.num_commits, self._parts) or self.num_commits > 0:
                return
        except ShardsLostError as error:
            if checkpointer is None or checkpointer.newest() is None:
                raise
            lost = error.what
        if checkpointer is not None:
            whole = self.whole()
            step = checkpointer.restore(whole)
            if lost:
                _log.warning("%s; the training goes back to the checkpoint of step %s", lost, step)
            for name, value in whole["values"].items():
                setattr(self, name, value)

    def _plain_names(self) -> list[str]:
        return [name for name in self._value_names if name not in self._handlers]
