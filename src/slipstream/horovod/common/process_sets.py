"""Process sets: subsets of the ranks that run collectives among themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from slipstream import comm
from slipstream.horovod.common.exceptions import NOT_INITIALIZED


class ProcessSet:
    """A subset of the ranks of the job.

    Pass the set to init() or add_process_set() first, and then to collectives.

    Args:
        ranks: Ranks of the job that belong to the set. A communicator of mpi4py is refused.

    Raises:
        ValueError: `ranks` is not a list of whole numbers.
    """

    def __init__(self, ranks: Any) -> None:
        message = "ProcessSet should be initialized with a list of process ranks"
        if not isinstance(ranks, Iterable):
            raise ValueError(f"{message}, not with {ranks!r}; MPI is not supported")
        numbers = list(cast("Iterable[Any]", ranks))
        if not all(isinstance(number, int) for number in numbers):
            raise ValueError(f"{message}, not with {numbers!r}")
        self.ranks: list[int] = sorted(numbers)
        self.process_set_id: int | None = None

    def register(self, number: int, ranks: Iterable[int]) -> None:
        """Make the set usable. Only `HorovodJob` and its functions may call register().

        Args:
            number: Identifier of the set in the job.
            ranks: Ranks of the job that belong to the set.
        """
        self.process_set_id, self.ranks = number, list(ranks)

    def invalidate(self) -> None:
        """Make the set unusable. Only `HorovodJob` and its functions may call invalidate()."""
        self.process_set_id = None

    def size(self) -> int | None:
        """Return the number of ranks in the set; None if the set is not registered.

        Raises:
            ValueError: init() has not been called.
        """
        if self.process_set_id is None:
            return None
        _own_rank()  # raises before init()
        return len(self.ranks)

    def rank(self) -> int | None:
        """Return the position of this rank in the set; None if the set is not registered.

        Raises:
            ValueError: This rank is not in the set, or init() has not been called.
        """
        if self.process_set_id is None:
            return None
        own_rank = _own_rank()
        if own_rank not in self.ranks:
            raise ValueError(f"Process is not part of provided process set. {self}")
        return self.ranks.index(own_rank)

    def included(self) -> bool:
        """Return whether this rank is in the set.

        Raises:
            ValueError: init() has not been called.
        """
        return _own_rank() in self.ranks

    def __str__(self) -> str:
        """Return the identifier and the ranks of the set as text."""
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _own_rank() -> int:
    if not comm.is_initialized():
        raise ValueError(NOT_INITIALIZED)
    return comm.rank()


global_process_set = ProcessSet(())
"""Process set of all ranks, and the default of all collectives."""
global_process_set.process_set_id = 0
