"""Records of elastic jobs: a folder for each epoch that had a fault, and the view of that epoch.

Survivors of a fault keep their engine with its numbers, while the ranks of each epoch are counted
anew. A record speaks of the ranks of one epoch, and of what happened during it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slipstream.flight.facts import ranks_in_words
from slipstream.flight.files import epoch_folder
from slipstream.flight.record import RecordedEngine, RecordedEpoch, RecordedEvent, RecordedOperation

_RANKS = re.compile(r"\b([Rr])anks? (\d+(?:(?:-|, )\d+)*)")
_COMMITS = "world commits"  # the group of the flags that say that members should change


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochView:
    """An epoch, as a process that belongs to it sees it.

    Args:
        number: Number of the epoch.
        title: Name of the epoch, with which the names of its groups begin; the same on all ranks.
        rank: Rank of this process in the epoch.
        numbers: Number in the engine of each rank of the epoch.
        slots: Slot of each rank in the launcher's list, -1 for none.
        began: Time at which this process entered the epoch, on the monotonic clock; 0 if its engine
            has had no other epoch.
    """

    number: int
    title: str
    rank: int
    numbers: tuple[int, ...]
    slots: tuple[int, ...]
    began: float

    @property
    def folder(self) -> str:
        """Name of the folder for the records of the epoch; no other epoch has the same."""
        return epoch_folder(self.number, self.title)

    def recorded(self, followed_by: int) -> RecordedEpoch:
        """Return the part of a record that names the epoch."""
        return RecordedEpoch(
            number=self.number, title=self.title, slots=self.slots, followed_by=followed_by
        )

    def is_of_another(self, group: str) -> bool:
        """Return whether a group belongs to another epoch, by its name."""
        return group.startswith("epoch ") and not group.startswith(self.title)

    def of(self, engine: RecordedEngine, ended: float) -> RecordedEngine:
        """Return what an engine did during the epoch, with the ranks of the epoch.

        The group of all ranks is called "world", as in other jobs.

        Args:
            engine: Engine with the numbers that it has given to its ranks.
            ended: Time at which this process entered the next epoch; inf if it has not.
        """
        ranks = {number: rank for rank, number in enumerate(self.numbers)}
        told = _translator(ranks)

        def is_now(group: str, at: float) -> bool:
            return self.began <= at < ended and not self.is_of_another(group)

        def named(group: str) -> str:
            return group.replace(self.title, "world", 1)

        groups = (group for group in engine.groups if not self.is_of_another(group.name))
        return replace(
            engine,
            rank=self.rank,
            world_size=len(self.numbers),
            events=tuple(
                replace(_event(each, ranks, told), group=named(each.group))
                for each in engine.events
                if is_now(each.group, each.at)
            ),
            operations=_asked_for(
                replace(_operation(each, ranks, told), group=named(each.group))
                for each in engine.operations
                if is_now(each.group, each.submitted)
            ),
            peers=tuple(
                replace(each, rank=ranks[each.rank], why=told(each.why))
                for each in engine.peers
                if each.rank in ranks
            ),
            groups=tuple(
                replace(
                    each,
                    name=named(each.name),
                    ranks=tuple(ranks[number] for number in each.ranks),
                    failure=told(each.failure),
                )
                for each in groups
                if ranks.keys() >= set(each.ranks)
            ),
        )


def _translator(ranks: dict[int, int]) -> Callable[[str], str]:
    """Return a function that replaces the engine's numbers of ranks in a text."""
    if all(number == rank for number, rank in ranks.items()):
        return lambda text: text

    def replaced(match: re.Match[str]) -> str:
        numbers: list[int] = []
        for part in match[2].split(", "):
            low, _, high = part.partition("-")
            numbers += range(int(low), int(high or low) + 1)
        if not ranks.keys() >= set(numbers):
            return match[0]
        return match[1] + ranks_in_words(ranks[number] for number in numbers)[1:]

    return lambda text: _RANKS.sub(replaced, text)


def _asked_for(operations: Iterable[RecordedOperation]) -> tuple[RecordedOperation, ...]:
    """Return the operations without the flags of commits, if the script waits for others."""
    given = tuple(operations)
    own = tuple(each for each in given if each.group != _COMMITS)
    return own if any(each.state != "done" for each in own) else given


def _event(
    event: RecordedEvent, ranks: dict[int, int], told: Callable[[str], str]
) -> RecordedEvent:
    rank = None if event.rank is None else ranks.get(event.rank)
    return replace(event, rank=rank, text=told(event.text))


def _operation(
    operation: RecordedOperation, ranks: dict[int, int], told: Callable[[str], str]
) -> RecordedOperation:
    return replace(
        operation,
        error=told(operation.error),
        absent=tuple(ranks[number] for number in operation.absent if number in ranks),
        missing=tuple(ranks[number] for number in operation.missing if number in ranks),
    )
