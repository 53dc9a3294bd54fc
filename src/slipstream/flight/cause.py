"""The cause of a fault, as the account states it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slipstream.flight.facts import RankFacts, operation_in_words, ranks_in_words
from slipstream.flight.folder import Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """The cause of a fault.

    Args:
        kind: "killed", "out of memory", "crashed", "exception", "mismatch", "aborted", "stopped",
            "network", "lost", "left", "stuck", "slow", "interrupted" or "unknown".
        ranks: Ranks at fault.
        headline: Cause in one sentence.
        details: Further lines, such as the source line of an exception.
        advice: Sentences about what to do.
    """

    kind: str
    ranks: tuple[int, ...]
    headline: str
    details: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


Facts = Mapping[int, RankFacts]
Finder = Callable[[Evidence, Facts], Cause | None]


def when(evidence: Evidence, rank: int) -> str:
    """Return " 3.1 s after the start" for a rank whose end the launcher saw; otherwise ""."""
    end = evidence.end_of(rank)
    if end is None or end.seconds is None or end.by_launcher:
        return ""
    return f" {end.seconds:.1f} s after the start"


def others_in_words(facts: Facts, ranks: tuple[int, ...]) -> str:
    """Return what the other ranks were doing, as an appendix to a headline; "" if nothing."""
    waiting: dict[str, list[int]] = {}
    for rank, each in facts.items():
        if rank not in ranks and each.waiting is not None:
            waiting.setdefault(operation_in_words(each.waiting), []).append(rank)
    if not waiting:
        return ""
    title, who = max(waiting.items(), key=lambda item: len(item[1]))
    return f"; {ranks_in_words(who)} {'was' if len(who) == 1 else 'were'} in {title}"
