"""How far each rank was, how the fault spread, and where clocks disagree."""

from __future__ import annotations

import time
from collections.abc import Iterator

from slipstream.flight.cause import Facts
from slipstream.flight.facts import RankFacts, first_line, place_in_words, ranks_in_words
from slipstream.flight.record import RecordedEvent

# Clocks of hosts that are kept by NTP differ by less.
_SKEW_SECONDS = 0.05
_MOST_NOTICES = 16


def differences(facts: Facts) -> list[str]:
    """Return sentences about ranks that were behind the others in the group that failed."""
    name = _troubled_group(facts)
    progress = {rank: done for rank in facts if (done := _submitted(facts, rank, name)) is not None}
    if not progress:
        return []
    most = max(progress.values())
    lines: list[str] = []
    for rank, done in progress.items():
        if done == most:
            continue
        behind = f"{most - done} operation{'s' * (most - done > 1)}"
        place = place_in_words(facts[rank].place)
        where = f"; its main thread was at {place}" if place else ""
        at_least = "" if facts[rank].record is not None else " at most"
        lines.append(f"rank {rank} was{at_least} {behind} behind in group '{name}'{where}")
    return lines


def _troubled_group(facts: Facts) -> str:
    """Return the name of the group in which ranks waited, or "world"."""
    waiting = [each.waiting.group for each in facts.values() if each.waiting is not None]
    return max(set(waiting), key=waiting.count) if waiting else "world"


def _submitted(facts: Facts, rank: int, name: str) -> int | None:
    """Return how many operations of a group a rank had submitted, as far as any rank knows."""
    known = [
        group.submitted[group.ranks.index(rank)]
        for each in facts.values()
        if each.engine is not None
        for group in each.engine.groups
        if group.name == name and rank in group.ranks and len(group.submitted) == len(group.ranks)
    ]
    return max(known, default=None)


def notices(facts: Facts) -> list[str]:
    """Return how the ranks learned of the fault: first those that noticed it themselves."""
    noticed: list[tuple[float, str]] = []
    told: list[tuple[float, str]] = []
    for each in facts.values():
        failure = each.failure
        if failure is None:
            continue
        teller = _teller(each, failure)
        text = first_line(failure.text).rstrip(":")
        moment = time.strftime("%H:%M:%S", time.localtime(failure.wall))
        who = f"{moment}.{int(failure.wall % 1 * 1000):03} rank {each.rank}"
        if teller is None:
            noticed.append((failure.wall, f"{who} noticed: {text}"))
        else:
            told.append((failure.wall, f"{who} was told by rank {teller}"))
    lines = [text for _, text in sorted(noticed)] + [text for _, text in sorted(told)]
    more = len(lines) - _MOST_NOTICES
    return lines if more <= 0 else [*lines[:_MOST_NOTICES], f"and {more} more ranks"]


def _teller(each: RankFacts, failure: RecordedEvent) -> int | None:
    """Return the rank whose message made a group fail, or None if the rank noticed it itself."""
    for event in each.events:
        if event.kind == "aborted" and event.group == failure.group and event.at <= failure.at:
            return event.rank
    return None


def clock_differences(facts: Facts) -> list[str]:
    """Return sentences about hosts whose clocks contradict what the ranks told each other."""
    worst: dict[tuple[str, str], float] = {}
    for teller, listener, seconds in _contradictions(facts):
        pair = (facts[teller].host, facts[listener].host)
        worst[pair] = max(worst.get(pair, 0.0), seconds)
    return [
        f"the clock of host {listener} is at least {seconds:.2f} s behind that of host {teller}:"
        " times of the two hosts cannot be compared"
        for (teller, listener), seconds in worst.items()
    ]


def _contradictions(facts: Facts) -> Iterator[tuple[int, int, float]]:
    """Yield (teller, listener, seconds) where a rank was told before the other had failed."""
    for each in facts.values():
        failure = each.failure
        teller = None if failure is None else _teller(each, failure)
        if failure is None or teller is None or teller not in facts:
            continue
        cause = facts[teller].failure
        if cause is None or facts[teller].host == each.host:
            continue
        seconds = cause.wall - failure.wall
        if seconds > _SKEW_SECONDS:
            yield teller, each.rank, seconds


def unrecorded(facts: Facts) -> list[str]:
    """Return a sentence about the ranks that have written no record."""
    without = [rank for rank, each in facts.items() if each.record is None and not each.crash]
    if not without:
        return []
    verb = "has" if len(without) == 1 else "have"
    return [
        f"{ranks_in_words(without)} {verb} written no record: a killed or stopped process cannot,"
        " and a process that ends by itself without a fault does not"
    ]


def survivors(facts: Facts) -> list[str]:
    """Return sentences about the ranks of an elastic job that went on after the fault."""
    by_epoch: dict[int, list[int]] = {}
    for rank, each in facts.items():
        if each.went_on_in:
            by_epoch.setdefault(each.went_on_in, []).append(rank)
    return [
        f"{ranks_in_words(ranks)} went on in epoch {epoch}, where ranks may have other numbers"
        for epoch, ranks in sorted(by_epoch.items())
    ]
