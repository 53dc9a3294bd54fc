"""Some of the ranks, which run collectives among themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast


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
        self.ranks: list[int] | None = sorted(chosen)
        self.process_set_id: int | None = None
        self._own_rank: Callable[[], int] | None = None

    def register(self, number: int, ranks: Iterable[int], own_rank: Callable[[], int]) -> None:
        """Makes it usable; for the job.

        Args:
            number: of the set.
            ranks: of it.
            own_rank: tells this rank in the job.
        """
        self.process_set_id, self.ranks, self._own_rank = number, list(ranks), own_rank

    def invalidate(self) -> None:
        """Makes it unusable; for the job."""
        self.process_set_id = None

    def size(self) -> int | None:
        """Return the number of its ranks; None where it is not registered."""
        return None if self.process_set_id is None else len(self.ranks or ())

    def rank(self) -> int | None:
        """Return this rank's place in it; None where it is not registered.

        Raises:
            ValueError: this rank is not in it.
        """
        if self.process_set_id is None or self.ranks is None or self._own_rank is None:
            return None
        if self._own_rank() not in self.ranks:
            raise ValueError(f"Process is not part of provided process set. {self}")
        return self.ranks.index(self._own_rank())

    def included(self) -> bool | None:
        """Return whether this rank is in it; None before it was ever registered."""
        if self.ranks is None or self._own_rank is None:
            return None
        return self._own_rank() in self.ranks

    def __str__(self) -> str:
        """Return its number and ranks."""
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet(())
"""All ranks; collectives use it where none is passed."""
global_process_set.process_set_id = 0
