"""Agreement between the ranks that save and restore together.

Only calls of the user's thread communicate here, because collectives of a background thread would
race with those of the training. While a checkpoint is written, ranks tell each other by files, and
the engine of slipstream.comm tells which ranks are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist

from slipstream import comm
from slipstream.comm import worlds
from slipstream.comm.active import open_engines
from slipstream.comm.elastic.session import begun_session
from slipstream.errors import UsageError
from slipstream.settings import detect_launcher

# Reason of the engine for a rank that has closed its engine in order. Its process may still write.
_LEFT = "has left the job"


@runtime_checkable
class Ranks(Protocol):
    """The ranks that save and restore together.

    Attributes:
        rank: Number of this rank, 0 to num_ranks - 1.
        num_ranks: Number of ranks.
    """

    rank: int
    num_ranks: int

    def gather(self, text: str) -> list[str]:
        """Return the texts of all ranks, in their order. All ranks must call this; blocks."""
        ...


class OneRank:
    """A process that saves and restores alone."""

    def __init__(self) -> None:
        self.rank = 0
        self.num_ranks = 1

    def gather(self, text: str) -> list[str]:
        """Return the text of this rank."""
        return [text]


class TorchRanks:
    """The ranks of a group of torch.distributed.

    Args:
        group: Group, or None for the group of all ranks (default).
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.rank = dist.get_rank(group)
        self.num_ranks = dist.get_world_size(group)

    def gather(self, text: str) -> list[str]:
        """Return the texts of all ranks, in their order. All ranks must call this; blocks."""
        data = text.encode()
        sizes = [int(size) for size in self._gather(torch.tensor([len(data)], device="cpu"))]
        padded = torch.zeros(max([*sizes, 1]), dtype=torch.uint8, device="cpu")
        padded[: len(data)] = torch.tensor(list(data), dtype=torch.uint8, device="cpu")
        rows = self._gather(padded)
        return [
            row[:size].numpy().tobytes().decode() for row, size in zip(rows, sizes, strict=True)
        ]

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        is_nccl = dist.get_backend(self._group) == "nccl"
        source = tensor.cuda() if is_nccl else tensor
        rows = [torch.empty_like(source) for _ in range(self.num_ranks)]
        cast("Any", dist).all_gather(rows, source, group=self._group)
        return [row.cpu() for row in rows]


class CommRanks:
    """The ranks of a group of slipstream.comm.

    Args:
        group: Group of slipstream.comm.
    """

    def __init__(self, group: comm.Group) -> None:
        self._group = group
        self.rank = group.rank
        self.num_ranks = group.size

    def gather(self, text: str) -> list[str]:
        """Return the texts of all ranks, in their order. All ranks must call this; blocks."""
        data = np.frombuffer(text.encode(), np.uint8)
        sizes: list[int] = self._group.all_gather(np.array([data.size], np.int64)).ravel().tolist()
        padded = np.zeros(max([*sizes, 1]), np.uint8)
        padded[: data.size] = data
        rows: Any = self._group.all_gather(padded)
        return [row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)]


def find_ranks(group: Any = None) -> Ranks:
    """Return the ranks of a group; without a group, all ranks of the job.

    Args:
        group: Group of torch.distributed or of slipstream.comm, or an object with rank, num_ranks
            and gather(); None (default) takes the group of all ranks of torch.distributed if it is
            initialized, else that of slipstream.comm (and so of slipstream.horovod) if it is, else
            this process alone.

    Raises:
        UsageError: The group is of another kind, or a launcher started several ranks and neither of
            the two is initialized.
    """
    if isinstance(group, Ranks):
        return group
    if isinstance(group, comm.Group):
        return CommRanks(group)
    if isinstance(group, dist.ProcessGroup):
        return TorchRanks(group)
    if group is not None:
        raise UsageError(
            f"group is a {type(group).__name__}; allowed: a group of torch.distributed or of"
            " slipstream.comm, or None"
        )
    if dist.is_available() and dist.is_initialized():
        return TorchRanks()
    if comm.is_initialized():
        return CommRanks(comm.world())
    if detect_launcher().world_size > 1:
        raise UsageError(
            f"the launcher started {detect_launcher().world_size} ranks, which do not know each"
            " other; call torch.distributed.init_process_group() or slipstream.comm.init() before"
            " the Checkpointer is made"
        )
    return OneRank()


class RankWatch:
    """A watch over the ranks of a group: which are lost, and whether others have replaced them.

    Losses are known for all ranks of slipstream.comm, and in an elastic job also for PyTorch's
    default group. Of other groups nothing is known.

    Args:
        group: Group as `find_ranks` takes it.
    """

    def __init__(self, group: Any = None) -> None:
        self._default = _default_group() if group is None else None
        self._world = worlds.current_world() if _is_world(group) else None
        self._lost: dict[int, str] = {}

    def lost(self) -> Mapping[int, str]:
        """Return the ranks that are lost, with the reasons. Any thread may call it."""
        world = self._world
        # An engine that this process has closed takes all ranks for lost.
        if world is not None and world.engine in open_engines():
            numbers = {number: rank for rank, number in enumerate(world.members)}
            for number, reason in world.engine.runtime.lost_ranks():
                if number in numbers and reason != _LEFT:
                    self._lost[numbers[number]] = reason
        return self._lost

    def is_replaced(self) -> bool:
        """Return whether the process now has another default group, as after each change."""
        present = _default_group()
        # Without a group of the kind, the job has only ended its communication.
        return type(present) is type(self._default) and present is not self._default


def _default_group() -> object | None:
    """Return the group of all ranks, an object that is made anew with each change of the ranks."""
    if dist.is_available() and dist.is_initialized():
        return dist.group.WORLD
    return worlds.current_world() if comm.is_initialized() else None


def _is_world(group: Any) -> bool:
    """Return whether the ranks of a group are those of the world of slipstream.comm."""
    if not comm.is_initialized():
        return False
    if isinstance(group, comm.Group):
        return group is comm.world()
    if group is not None or not (dist.is_available() and dist.is_initialized()):
        return group is None
    if begun_session() is None:
        return False
    from slipstream.torch.backend import BACKEND_NAME  # it registers the backend

    return dist.get_backend() == BACKEND_NAME
