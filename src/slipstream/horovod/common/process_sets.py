"""Some of the ranks, which run collectives among themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from slipstream import comm
from slipstream.horovod.common.exceptions import NOT_INITIALIZED


class ProcessSet:
    """Some ranks of the job. Pass it to init() or add_process_set(), then to collectives.

    Args:
        ranks: whole numbers; a communicator of mpi4py is refused.

    Raises:
        ValueError: these are not ranks.
    """

    def __init__(self, ranks: Any) -> None:
        message = "ProcessSet should be initialized with a list of process ranks"
        if not isinstance(ranks, Iterable):
            raise ValueError(f"{message}, which is {ranks!r}; MPI is not known here")
        chosen = list(cast("Iterable[Any]", ranks))
        if not all(isinstance(each, int) for each in chosen):
            raise ValueError(f"{message}, which is {chosen!r}")
        self.ranks: list[int] = sorted(chosen)
        self.process_set_id: int | None = None

    def register(self, number: int, ranks: Iterable[int]) -> None:
        """Make it usable; for the job.

        Args:
            number: Number of the set.
            ranks: Ranks of the set.
        """
        self.process_set_id, self.ranks = number, list(ranks)

    def invalidate(self) -> None:
        """Make it unusable; for the job."""
        self.process_set_id = None

    def size(self) -> int | None:
        """Return the number of its ranks; None where it is not registered.

        Raises:
            ValueError: init() has not been called.
        """
        if self.process_set_id is None:
            return None
        _own_rank()
        return len(self.ranks)

    def rank(self) -> int | None:
        """Return this rank's place in it; None where it is not registered.

        Raises:
            ValueError: this rank is not in it, or init() has not been called.
        """
        if self.process_set_id is None:
            return None
        own = _own_rank()
        if own not in self.ranks:
            raise ValueError(f"Process is not part of provided process set. {self}")
        return self.ranks.index(own)

    def included(self) -> bool:
        """Return whether this rank is in it.

        Raises:
            ValueError: init() has not been called.
        """
        return _own_rank() in self.ranks

    def __str__(self) -> str:
        """Return its number and ranks."""
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _own_rank() -> int:
    if not comm.is_initialized():
        raise ValueError(NOT_INITIALIZED)
    return comm.rank()


global_process_set = ProcessSet(())
"""All ranks; collectives use it where none is passed."""
global_process_set.process_set_id = 0
