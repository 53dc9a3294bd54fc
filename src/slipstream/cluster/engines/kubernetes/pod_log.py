"""The journal of a run in the logs of pods, which follow one another when pods are lost.

A position is the name of a pod, the time of the last line that was read, and the number of lines
that were read with this time. Logs are rotated, so a number of bytes would not do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

NANOSECOND_DIGITS = 9


class _LogPosition(NamedTuple):
    pod: str = ""
    time: str = ""
    num_read: int = 0


def read_pod_log(
    read: Callable[[str, str], str], pods: Sequence[str], position: str
) -> tuple[str, str]:
    """Return new complete lines and the position after them.

    Args:
        read: Function that returns the log of a pod since a time with whole seconds; each line is
            preceded by its own time.
        pods: Names of the pods with a part of the journal, the oldest first.
        position: Position from the last call, or "" for the beginning.
    """
    if not pods:
        return "", position
    now = _parse(position)
    if now.pod not in pods:
        # The first pod at the beginning; later, the one that has taken the place of a lost one.
        now = _LogPosition(pod=pods[-1] if now.pod else pods[0])
    while True:
        text, after = _read_one(read, now)
        if text or now.pod == pods[-1]:
            return text, _text(after) if text else position
        now = _LogPosition(pod=pods[pods.index(now.pod) + 1])


def _read_one(read: Callable[[str, str], str], now: _LogPosition) -> tuple[str, _LogPosition]:
    since = f"{now.time[:19]}Z" if now.time else ""
    lines: list[str] = []
    last, count, seen = now.time, now.num_read, 0
    for line in read(now.pod, since).split("\n")[:-1]:
        stamp, _, text = line.partition(" ")
        if now.time and _key(stamp) < _key(now.time):
            continue
        if stamp == now.time and seen < now.num_read:
            seen += 1
            continue
        count = count + 1 if stamp == last else 1
        last = stamp
        lines.append(text)
    text = "".join(f"{line}\n" for line in lines)
    return text, _LogPosition(pod=now.pod, time=last, num_read=count)


def _key(stamp: str) -> tuple[str, str]:
    """Return what orders times such as 2026-11-29T14:00:00.5Z, whose fractions lack zeros."""
    fraction = stamp[19:].strip(".Z")
    return stamp[:19], fraction.ljust(NANOSECOND_DIGITS, "0")


def _parse(position: str) -> _LogPosition:
    if not position:
        return _LogPosition()
    pod, time, count = position.split(" ")
    return _LogPosition(pod=pod, time=time, num_read=int(count))


def _text(position: _LogPosition) -> str:
    return f"{position.pod} {position.time} {position.num_read}"
