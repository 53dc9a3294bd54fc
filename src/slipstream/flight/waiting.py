"""Ranks for which others waited in vain, and jobs that a person ended."""

from __future__ import annotations

from dataclasses import replace

from slipstream.flight.cause import Cause, Facts
from slipstream.flight.facts import (
    RankFacts,
    capital,
    operation_in_words,
    place_in_words,
    ranks_in_words,
)
from slipstream.flight.folder import Evidence
from slipstream.flight.record import RecordedOperation

# A rank that has waited for less than this time is not worth a word when a person ends the job.
_LONG_SECONDS = 1.0


def find_stuck(_: Evidence, facts: Facts) -> Cause | None:
    """Return the cause if ranks waited for long for others, as a stall or a timeout shows."""
    waits = [
        each
        for each in facts.values()
        if each.waiting is not None and (_has_stalled(each) or _has_timed_out(each))
    ]
    return _stuck(facts, waits)


def _has_stalled(each: RankFacts) -> bool:
    return any(event.kind == "stalled" for event in each.events)


def _has_timed_out(each: RankFacts) -> bool:
    return each.failure is not None and "reached its timeout" in each.failure.text


def _stuck(facts: Facts, waits: list[RankFacts]) -> Cause | None:
    longest = max(waits, key=waited_seconds, default=None)
    if longest is None or longest.waiting is None:
        return None
    operation, seconds = longest.waiting, waited_seconds(longest)
    absent = {rank for each in waits if each.waiting is not None for rank in each.waiting.absent}
    waiting = tuple(each.rank for each in waits)
    late = tuple(sorted(rank for rank in absent if rank in facts and rank not in waiting))
    title = operation_in_words(operation)
    if not late:
        return _slow(facts, waiting, operation, seconds)
    who = ranks_in_words(waiting)
    places = [f"rank {rank} was at {_where(facts[rank])}" for rank in late]
    short = place_in_words(facts[late[0]].place)
    at = f" in its own code, at {short}," if short and len(late) == 1 else " in code of its own"
    return Cause(
        kind="stuck",
        ranks=late,
        headline=f"{capital(ranks_in_words(late))} {'was' if len(late) == 1 else 'were'} busy or"
        f" stuck{at} while {who} waited for {seconds:.0f} s in {title}.",
        details=tuple(places),
        advice=(
            "Look at the line where the late rank was: slow or blocked input, a lock, an evaluation"
            " that only one rank runs, an endless loop.",
            "If the rank was only slow, raise SLIPSTREAM_TIMEOUT, or SLIPSTREAM_STALL_SECONDS for"
            " later reports.",
        ),
    )


def waited_seconds(each: RankFacts) -> float:
    """Return for how many seconds a rank waited in its first unfinished operation."""
    operation = each.waiting
    if operation is None or each.record is None:
        return 0.0
    end = operation.ended if operation.ended is not None else each.record.clock.monotonic
    return end - operation.submitted


def _where(each: RankFacts) -> str:
    place = each.place
    if place is None:
        return "an unknown place: it has written no record"
    return place_in_words(place) + (f": {place.code}" if place.code else "")


def _slow(
    facts: Facts, waiting: tuple[int, ...], operation: RecordedOperation, seconds: float
) -> Cause:
    missing = tuple(rank for rank in operation.missing if rank in facts)
    from_whom = f" from or to {ranks_in_words(missing)}" if missing else ""
    return Cause(
        kind="slow",
        ranks=missing,
        headline=f"{capital(ranks_in_words(waiting))} waited for {seconds:.0f} s in"
        f" {operation_in_words(operation)}: all ranks had submitted it, but its data{from_whom} did"
        " not arrive.",
        advice=(
            "The network lost or delayed the data: compare the streams and bytes of the peers in"
            " the records, and try `slipstream bench comm` between the hosts.",
        ),
    )


def find_interrupt(evidence: Evidence, facts: Facts) -> Cause | None:
    """Return the cause if a person or a scheduler ended the job."""
    name = evidence.launcher.signal if evidence.launcher is not None else ""
    interrupted = [each for each in facts.values() if _is_interrupted(each)]
    if not name and interrupted:
        name = "SIGINT"
    if not name:
        name = _signal_from_outside(evidence, facts)
    if not name or any(_failed_before_its_end(each) for each in facts.values()):
        return None
    waits = [each for each in facts.values() if _waits_long(each)]
    waited = _stuck(facts, waits)
    who = "Ctrl-C, or a signal from outside" if name == "SIGINT" else "a signal from outside"
    if waited is None:
        return Cause(
            kind="interrupted",
            ranks=(),
            headline=f"{name} ended the job ({who}); no rank had a fault before.",
            advice=(
                "Nothing has to be mended; a scheduler's log says whether a time limit ended it.",
            )
            if name != "SIGINT"
            else ("Nothing has to be mended.",),
        )
    return replace(
        waited,
        kind="interrupted",
        headline=f"{name} ended the job ({who}); before that: {waited.headline}",
    )


def _signal_from_outside(evidence: Evidence, facts: Facts) -> str:
    """Return the name of a signal that ended ranks before any had failed; otherwise "".

    The end of the first rank may be a failure of others, to which the signal comes a moment later.
    """
    if evidence.launcher is not None and evidence.launcher.first is not None:
        return ""
    has_failed = any(each.failure is not None for each in facts.values())
    if has_failed and any(each.record is None for each in facts.values()):
        return ""
    return "SIGTERM" if any(_was_well_before_its_signal(each) for each in facts.values()) else ""


def _was_well_before_its_signal(each: RankFacts) -> bool:
    signals = [one.at for one in each.occasions if one.kind == "signal"]
    return bool(signals) and (each.failure is None or each.failure.at >= signals[0])


def _failed_before_its_end(each: RankFacts) -> bool:
    """Return whether a group had failed some time before a person ended the rank."""
    ends = [one.at for one in each.occasions if one.kind in ("signal", "exception")]
    failure = each.failure
    return failure is not None and bool(ends) and failure.at < ends[-1] - _LONG_SECONDS


def _is_interrupted(each: RankFacts) -> bool:
    occasion = each.exception
    return (
        occasion is not None
        and occasion.error is not None
        and occasion.error.type == "KeyboardInterrupt"
    )


def _waits_long(each: RankFacts) -> bool:
    return waited_seconds(each) > _LONG_SECONDS
