"""One account of a fault, from the flight records of all ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.errors import UsageError
from slipstream.flight import progress
from slipstream.flight.cause import Cause, Facts, Finder
from slipstream.flight.deaths import find_death
from slipstream.flight.disagreement import find_abort, find_mismatch
from slipstream.flight.facts import (
    RankFacts,
    capital,
    facts_of,
    first_line,
    name_of_signal,
    place_in_words,
    ranks_in_words,
)
from slipstream.flight.files import FIRST_KEPT, NEWEST_KEPT, epoch_folders, num_dropped
from slipstream.flight.folder import Evidence, read_folder, read_launcher
from slipstream.flight.launcher import LauncherRecord
from slipstream.flight.lost import NewStart, new_starts
from slipstream.flight.record import RecordedOperation
from slipstream.flight.silence import find_leaver, find_silence
from slipstream.flight.waiting import find_interrupt, find_stuck

# The first finder that finds a cause decides. A rank that died explains everything else; what ranks
# said of each other explains more than that they waited.
_FINDERS: tuple[Finder, ...] = (
    find_death,
    find_mismatch,
    find_abort,
    find_interrupt,
    find_silence,
    find_leaver,
    find_stuck,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountRow:
    """One rank in the account.

    Args:
        rank: Rank of the process.
        host: Name of its host, or "".
        pid: Number of the process, or None.
        end: End of the process, in words.
        finished: Last operation that ended well, or "".
        waiting: Operation in which the rank was when the fault came, or "".
        waits_for: Ranks that had not submitted this operation, or else whose data were missing.
        place: Innermost call outside libraries, or "".
    """

    rank: int
    host: str
    pid: int | None
    end: str
    finished: str
    waiting: str
    waits_for: tuple[int, ...]
    place: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """An account of a fault.

    Args:
        headline: Cause in one sentence.
        kind: Kind of the cause; see `Cause`.
        ranks_at_fault: Ranks at fault.
        details: Lines about the cause, such as a source line or a stack.
        notices: Sentences about how the ranks learned of the fault, in order.
        rows: One row for each rank.
        differences: Sentences about ranks that were behind, clocks that differ and records that are
            missing.
        advice: Sentences about what to do.
        problems: Files that could not be read.
        survived: Sentences about the ranks that went on, in an elastic job.
        others: Other faults and new starts of the same elastic job, each in one line, the newest
            first.
        wall: Wall clock at the first occasion of a record, 0 if there is none.
    """

    headline: str
    kind: str
    ranks_at_fault: tuple[int, ...]
    details: tuple[str, ...]
    notices: tuple[str, ...]
    rows: tuple[AccountRow, ...]
    differences: tuple[str, ...]
    advice: tuple[str, ...]
    problems: tuple[str, ...]
    survived: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    wall: float = 0.0


def explain(folder: Path) -> Account:
    """Merge the flight records in a folder into one account.

    If the folder is that of an elastic job with several faults, the newest one is explained, and
    the others are listed.

    Raises:
        UsageError: there is no such folder, or it has no record.
    """
    folders = epoch_folders(folder)
    if any(folder.glob("rank-*.json")):
        folders.insert(0, folder)  # a fault before the training began
    launcher = read_launcher(folder)
    starts = [] if launcher is None else new_starts(launcher)
    if not epoch_folders(folder):
        return replace(account_of(folder), others=tuple(_other_faults([], folder, starts)))
    *older, newest = _by_time(folders, launcher)
    others = _other_faults(older, folder, starts)
    if dropped := num_dropped(folder):
        others.append(
            f"records of {dropped} more fault{'s' * (dropped > 1)} were dropped: the first"
            f" {FIRST_KEPT} and the newest {NEWEST_KEPT} are kept"
        )
    told = account_of(newest)
    if starts and starts[-1].wall > _wall_of(newest):
        told = replace(told, details=(*told.details, f"after this fault: {starts[-1].in_words()}"))
    return replace(told, others=tuple(others))


def _by_time(folders: list[Path], launcher: LauncherRecord | None) -> list[Path]:
    """Return the folders of faults, the oldest first.

    A launcher that gives a job up ends the processes that it has just started. Their records are
    of no fault, unless there are no others.
    """
    ordered = sorted(folders, key=_wall_of)
    if launcher is not None and not launcher.signal and len(ordered) > 1:
        return [each for each in ordered if not _is_interrupted(each)] or ordered
    return ordered


def _is_interrupted(folder: Path) -> bool:
    try:
        return account_of(folder).kind == "interrupted"
    except UsageError:
        return False


def _other_faults(folders: list[Path], job: Path, starts: list[NewStart]) -> list[str]:
    """Return faults and new starts of an elastic job, each in one line, the newest first."""
    dated = [(_wall_of(each), _in_one_line(each, job)) for each in folders]
    dated += [(each.wall, each.in_words()) for each in starts]
    return [line for _, line in sorted(dated, key=lambda each: each[0], reverse=True)]


def _wall_of(folder: Path) -> float:
    """Return the wall clock at which the newest file of a folder was written."""
    return max((path.stat().st_mtime for path in folder.glob("rank-*.json")), default=0.0)


def _in_one_line(folder: Path, job: Path) -> str:
    """Return a fault of an elastic job in one line, with the folder that has more about it."""
    where = "" if folder == job else f" (slipstream explain {folder})"
    try:
        told = account_of(folder)
    except UsageError as error:
        return str(error)
    moment = time.strftime("%H:%M:%S", time.localtime(told.wall))
    return f"{moment} {told.headline}{where}"


def account_of(folder: Path) -> Account:
    """Merge the flight records of one fault into an account.

    Raises:
        UsageError: there is no such folder, or it has no record.
    """
    evidence = read_folder(folder)
    facts = facts_of(evidence)
    cause = find_cause(evidence, facts)
    return Account(
        headline=cause.headline,
        kind=cause.kind,
        ranks_at_fault=cause.ranks,
        details=cause.details,
        notices=tuple(progress.notices(facts)),
        rows=tuple(_row(each) for each in facts.values()),
        differences=(
            *progress.differences(facts),
            *progress.clock_differences(facts),
            *progress.unrecorded(facts),
        ),
        advice=cause.advice,
        problems=evidence.problems,
        survived=tuple(progress.survivors(facts)),
        wall=min((one.wall for each in facts.values() for one in each.occasions), default=0.0),
    )


def find_cause(evidence: Evidence, facts: Facts) -> Cause:
    """Return the cause of a fault; a cause of kind "unknown" lists what the ranks said."""
    for find in _FINDERS:
        cause = find(evidence, facts)
        if cause is not None:
            return cause
    return _unknown(evidence, facts)


def _unknown(evidence: Evidence, facts: Facts) -> Cause:
    said = {
        each.rank: first_line(each.occasions[0].text)
        for each in facts.values()
        if each.occasions and each.occasions[0].kind != "request"
    }
    launcher = evidence.launcher
    bad = [end.rank for end in launcher.ranks if end.status] if launcher is not None else []
    first = (
        facts.get(launcher.first) if launcher is not None and launcher.first is not None else None
    )
    if first is not None:
        headline = f"{capital(first.name)} ended first, {_end_of(first)}."
    elif said:
        rank = next(iter(said))
        headline = f"{ranks_in_words(said).capitalize()} had a fault; rank {rank}: {said[rank]}."
    else:
        headline = "No rank had a fault when these records were written."
    lines = first.end.last_lines if first is not None and first.end is not None else ()
    return Cause(
        kind="unknown",
        ranks=() if first is None else (first.rank,),
        headline=headline,
        details=(
            *(f"rank {rank}: {text}" for rank, text in said.items()),
            *(f"    {line}" for line in lines),
        ),
        advice=("Read the output of the ranks above the first error.",) if bad or said else (),
    )


def _row(each: RankFacts) -> AccountRow:
    waiting = each.waiting
    return AccountRow(
        rank=each.rank,
        host=each.host,
        pid=each.pid,
        end=_end_of(each),
        finished="" if each.finished is None else _short(each.finished),
        waiting="" if waiting is None else _short(waiting),
        waits_for=() if waiting is None else (waiting.absent or waiting.missing),
        place=place_in_words(each.place),
    )


def _short(operation: RecordedOperation) -> str:
    """Return an operation for a table, such as "allreduce 'x' #5"."""
    group = "" if operation.group == "world" else f" of '{operation.group}'"
    return f"{operation.title} #{operation.sequence}{group}"


def _end_of(each: RankFacts) -> str:
    """Return how a rank ended, in words."""
    end = each.end
    error = each.exception.error.type if each.exception and each.exception.error else ""
    error = error.rsplit(".", 1)[-1]
    if end is None and each.went_on_in:
        return "went on"
    if end is None:
        return error or ("no record" if each.record is None else "")
    if end.by_launcher:
        state = f", was {end.state}" if end.state in ("stopped", "traced") else ""
        return f"ended by the launcher{state}"
    if end.status is None:
        return error or "unknown"
    if end.status < 0:
        return f"signal {-end.status} ({name_of_signal(-end.status)})"
    return f"exit code {end.status}" + (f", {error}" if error else "")
