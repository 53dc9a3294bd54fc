"""Ranks that ended by themselves: killed, crashed, out of memory, or by an exception."""

from __future__ import annotations

import re

from slipstream.flight.cause import Cause, Facts, others_in_words, when
from slipstream.flight.facts import (
    CRASH_SIGNALS,
    RankFacts,
    capital,
    innermost,
    place_in_words,
    ranks_in_words,
    short_path,
)
from slipstream.flight.folder import Evidence
from slipstream.flight.record import RaisedError

# Texts of errors that mean a lack of memory, in lower case.
_MEMORY_TYPES = ("MemoryError", "OutOfMemoryError")
_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory")
# Texts of errors that mean a full disk.
_DISK_TEXTS = ("No space left on device", "Disk quota exceeded")
_SHORT_MEMORY = 0.05  # share of a host's memory that is left
_STACK_LINES = 12
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python")
# A line of Python's faulthandler.
_CALL = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


def find_death(evidence: Evidence, facts: Facts) -> Cause | None:
    """Return the cause if a rank was killed, crashed or raised an exception of its own."""
    dead = [each for each in facts.values() if each.crash or each.signal or each.own_error]
    dead = [each for each in dead if each.signal not in ("SIGINT", "SIGTERM", "SIGHUP")]
    if not dead:
        return None
    first = min(dead, key=lambda each: _order(evidence, facts, each))
    if first.own_error is not None and not first.crash and first.signal == "":
        return _exception(evidence, facts, first, first.own_error)
    if first.crash or first.signal in CRASH_SIGNALS:
        return _crash(evidence, facts, first)
    return _killed(evidence, facts, first)


def _order(evidence: Evidence, facts: Facts, each: RankFacts) -> tuple[float, int, float]:
    """Return a key by which the rank that failed first is the least.

    The launcher has one clock for all ranks. Without it, the rank that most others report as lost
    comes first, because clocks of different hosts need not agree.
    """
    end = evidence.end_of(each.rank)
    seconds = end.seconds if end is not None and end.seconds is not None else float("inf")
    blamed = sum(_loses_first(other, each.rank) for other in facts.values())
    wall = each.exception.wall if each.exception is not None else float("inf")
    return seconds, -blamed, wall


def _loses_first(observer: RankFacts, rank: int) -> bool:
    peers = () if observer.engine is None else observer.engine.peers
    lost = [peer for peer in peers if peer.ended is not None]
    return bool(lost) and min(lost, key=lambda peer: peer.ended or 0.0).rank == rank


def _exception(evidence: Evidence, facts: Facts, first: RankFacts, error: RaisedError) -> Cause:
    alike = tuple(
        rank
        for rank, each in facts.items()
        if each.own_error is not None and each.own_error.type == error.type
    )
    ranks = alike if len(alike) > 1 else (first.rank,)
    message = error.message.strip().splitlines()
    words = f"{error.type}: {message[0]}" if message else error.type
    place = innermost(error.lines)
    where = f", at {place_in_words(place)}" if place is not None else ""
    if len(alike) > 1:
        headline = f"{capital(ranks_in_words(alike))} raised {words}{where}."
    else:
        others = others_in_words(facts, ranks)
        moment = when(evidence, first.rank)
        headline = f"{capital(first.name)} failed first{moment}: {words}{where}{others}."
    lacks_memory = is_memory_error(error)
    details = [f"    {place.code}"] if place is not None and place.code else []
    details += [f"caused by {cause}" for cause in error.causes]
    return Cause(
        kind="out of memory" if lacks_memory else "exception",
        ranks=ranks,
        headline=headline,
        details=tuple(details),
        advice=_memory_advice(first, error)
        if lacks_memory
        else _exception_advice(ranks, facts, error),
    )


def is_memory_error(error: RaisedError) -> bool:
    """Return whether an exception says that memory is short, on the host or on a GPU."""
    text = error.message.lower()
    return error.type.endswith(_MEMORY_TYPES) or any(each in text for each in _MEMORY_TEXTS)


def _exception_advice(ranks: tuple[int, ...], facts: Facts, error: RaisedError) -> tuple[str, ...]:
    texts = (error.message, *error.causes)
    is_full = any(each in text for each in _DISK_TEXTS for text in texts)
    if is_full and any("/dev/shm" in text for text in texts):
        return (
            "/dev/shm is full: use fewer workers of the data loader, or give the container more"
            " shared memory (docker run --shm-size).",
        )
    if is_full:
        return (
            "The disk is full, or its quota is used up: delete what is not needed, or choose"
            " another folder. A Checkpointer keeps fewer checkpoints with keep=1.",
        )
    if error.type.startswith("slipstream."):
        return (
            "The error is Slipstream's own: its message names what is wrong, and on which rank.",
        )
    if len(ranks) > 1:
        return (
            "Several ranks raised the same exception, so the fault is in the script or in data that"
            " all ranks have: run the script with one rank to find it.",
        )
    others = len(facts) - 1
    only = "The other ranks did not raise it, so look at what differs on that rank: its part of the"
    return (
        "Mend the exception; the errors of the other ranks are consequences.",
        *((f"{only} data, its files and its GPU.",) if others else ()),
    )


def _memory_advice(first: RankFacts, error: RaisedError) -> tuple[str, ...]:
    if "cuda" in error.message.lower() or error.type.startswith("torch"):
        return (
            "The memory of the GPU is full: use a smaller batch, or shard parameters and optimiser"
            " states; `slipstream forecast` computes the memory of a step in advance.",
        )
    return (
        "Use a smaller batch, fewer workers of the data loader or fewer ranks on this host; what"
        f" the host had: {_memory_in_words(first) or 'unknown'}.",
    )


def _memory_in_words(facts: RankFacts) -> str:
    record = facts.record
    if record is None or record.memory.total is None:
        return ""
    memory = record.memory
    parts = [f"{_size(record.memory.total)} in all"]
    parts += [f"{_size(memory.available)} available"] if memory.available is not None else []
    parts += [f"a limit of {_size(memory.limit)}"] if memory.limit is not None else []
    parts += [f"{_size(memory.peak)} at most in rank {facts.rank}"] if memory.peak else []
    return ", ".join(parts)


def _size(number: int) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"


def _crash(evidence: Evidence, facts: Facts, first: RankFacts) -> Cause:
    named = first.signal or _signal_of_crash(first.crash) or "a fatal signal"
    place = _place_of_crash(first.crash)
    where = f", at {place}" if place else ""
    others = others_in_words(facts, (first.rank,))
    lines = _current_thread(first.crash)[:_STACK_LINES]
    return Cause(
        kind="crashed",
        ranks=(first.rank,),
        headline=f"{capital(first.name)} crashed{when(evidence, first.rank)}: {named} in native"
        f" code{where}{others}.",
        details=tuple(f"    {line}" for line in lines),
        advice=(
            "The crash is in native code that the line above calls: look at the versions of that"
            " library and of CUDA, and at tensors whose memory is gone or too small.",
            "`ulimit -c unlimited` makes the kernel keep a core file, which gdb can read.",
        ),
    )


def _signal_of_crash(crash: str) -> str:
    """Return the cause that Python's faulthandler names, such as "Segmentation fault"."""
    for line in crash.splitlines():
        if line.startswith("Fatal Python error:"):
            return line.removeprefix("Fatal Python error:").strip()
    return ""


def _current_thread(crash: str) -> list[str]:
    """Return the lines about the thread that crashed, the innermost call first."""
    lines: list[str] = []
    is_current = False
    for line in crash.splitlines():
        if line.startswith(("Current thread", "Thread 0x", "Extension modules")):
            is_current = line.startswith("Current thread")
        if is_current and line.strip():
            lines.append(line)
    return lines


def _place_of_crash(crash: str) -> str:
    """Return the innermost call outside installed packages of the thread that crashed."""
    calls = [match for line in _current_thread(crash) if (match := _CALL.match(line))]
    own = [call for call in calls if not any(part in call["file"] for part in _LIBRARIES)]
    for call in own or calls:
        return f"{short_path(call['file'])}:{call['line']} ({call['function']})"
    return ""


def _killed(evidence: Evidence, facts: Facts, first: RankFacts) -> Cause:
    end = first.end
    number = "" if end is None or end.status is None else f"signal {-end.status} "
    others = others_in_words(facts, (first.rank,))
    why, advice = _who_killed(facts, first)
    return Cause(
        kind="out of memory" if "out-of-memory" in why else "killed",
        ranks=(first.rank,),
        headline=f"{capital(first.name)} was killed by {number}({first.signal})"
        f"{when(evidence, first.rank)}{why}{others}.",
        advice=advice,
    )


def _who_killed(facts: Facts, first: RankFacts) -> tuple[str, tuple[str, ...]]:
    if first.signal != "SIGKILL":
        return "", (f"Find out who sent {first.signal}: the scheduler, or a person on that host.",)
    kills = first.end.oom_kills if first.end is not None else None
    if kills:
        return ", most likely by the kernel's out-of-memory killer", (
            f"The kernel of host {first.host} has killed {kills} process"
            f"{'es' * (kills > 1)} for lack of memory since the job began: use a smaller batch,"
            " fewer workers of the data loader, or fewer ranks on this host.",
            f"`dmesg | grep -i 'killed process'` on {first.host} names the processes.",
        )
    short = [each for each in facts.values() if each.host == first.host and _is_short(each)]
    if short:
        return ", perhaps by the kernel's out-of-memory killer", (
            f"Memory was short on host {first.host}: {_memory_in_words(short[0])}. Use a smaller"
            " batch, fewer workers of the data loader, or fewer ranks on this host.",
        )
    counted = "The kernel has killed no process of this host for lack of memory. " * (kills == 0)
    return "", (
        f"{counted}SIGKILL comes from a person, from the scheduler (a time or memory limit), or"
        " from a container that was stopped: look into the scheduler's log for process"
        f" {first.pid} on host {first.host}.",
    )


def _is_short(facts: RankFacts) -> bool:
    record = facts.record
    if record is None or not record.memory.total or record.memory.available is None:
        return False
    return record.memory.available < _SHORT_MEMORY * record.memory.total
