"""Units of published numbers, and the peak memory that a row states."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from slipstream.forecast.validate.row import TableRow, UnreadableError

_SECONDS = {
    "ms": 1e-3, "millisecond": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0,
    "minute": 60.0, "h": 3600.0, "hour": 3600.0, "day": 86400.0,
}  # fmt: skip
_TIME = rf"({'|'.join(sorted(_SECONDS, key=len, reverse=True))})s?\b"
_PER = r"\s*(?:/|per)\s*"
_RATE = re.compile(
    rf"(?:(images?|imgs?|samples?|sequences?|seqs?|sentences?|examples?|tokens?){_PER}{_TIME}|(tps))(.*)"
)
_PERIOD = re.compile(rf"{_TIME}{_PER}(?:iteration|iter|it|step|batch)\b")
_STEPS = re.compile(rf"(?:iterations?|steps?|its?){_PER}{_TIME}")
_TARGET = re.compile(rf"{_TIME}\s+(?:to|for)\b")
_SPEEDUP = re.compile(r"speed-?up\s+(?:vs\.?|over)\s+(?:1|one|a single)\s*(?:gpu|device)\b")
_DEVICE = re.compile(r"(?:/|per)\s*(?:gpu|device|chip|rank)\b")

_MEMORY = (
    re.compile(r"mem\w*?[_ ]?\(?(?P<unit>[mg]i?b)\)?\s*[=: ]\s*(?P<number>[\d.]+)"),
    re.compile(r"mem\w*\s*[=: ]\s*(?P<number>[\d.]+)\s*(?P<unit>[mg]i?b)\b"),
    re.compile(r"(?P<number>[\d.]+)\s*(?P<unit>[mg]i?b)\s*(?:/|per)\s*gpu"),
    re.compile(r"(?P<number>[\d.]+)\s*(?P<unit>[mg]ib\b|[mg]b\s+(?:peak\s+)?mem)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowUnit:
    """The unit of a published number.

    Args:
        kind: Kind of measurement: "rate" (samples or tokens per second), "period" (time of a step),
            "target" (time of a whole training) or "speedup" (over one device).
        factor: Factor that converts the measured number to seconds, samples per second, or tokens
            per second (default 1).
        tokens: Whether a rate counts tokens instead of samples (default False).
        per_device: Whether a rate is that of one device, not of all devices (default False).
    """

    kind: Literal["rate", "period", "target", "speedup"]
    factor: float = 1.0
    tokens: bool = False
    per_device: bool = False


def unit(text: str) -> RowUnit:
    """Return the unit of a published number.

    Args:
        text: Text such as "images/sec", "tokens/sec/GPU", "ms/iteration" or "hours to 93%".

    Raises:
        UnreadableError: The unit is unknown, or the number compares two systems.
    """
    plain = text.strip().lower()
    if match := _RATE.match(plain):
        noun, time, _, ending = match.groups()
        tokens = noun is None or noun.startswith("token")
        factor = 1.0 / _SECONDS[time] if time else 1.0
        return RowUnit(
            kind="rate", factor=factor, tokens=tokens, per_device=bool(_DEVICE.search(ending))
        )
    if match := _PERIOD.match(plain):
        return RowUnit(kind="period", factor=_SECONDS[match[1]])
    if match := _TARGET.match(plain):
        return RowUnit(kind="target", factor=_SECONDS[match[1]])
    if _SPEEDUP.match(plain):
        return RowUnit(kind="speedup")
    if re.match(r"x\b", plain):
        raise UnreadableError(f"{text!r} is a ratio of two systems; a rate or a time can be read")
    raise UnreadableError(
        f"the unit is {text!r}; samples or tokens per second, a time per step, a time to a target"
        " and a speed-up over one device can be read"
    )


def value(text: str) -> float:
    """Return a published number.

    Args:
        text: Positive number, with or without commas.

    Raises:
        UnreadableError: The text is not a positive number.
    """
    try:
        number = float(text.strip().replace(",", ""))
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise UnreadableError(f"the measured value is {text!r}; a positive number can be read")
    return number


def memory_mb(row: TableRow) -> float | None:
    """Return the peak memory of a device in MiB, or None if the row states no peak.

    Args:
        row: Published measurement, as a row of text. The memory may be part of the row's text for
            the model or the framework, such as "mem_MB=1528", "30338 MB/GPU" or "memory 82.4 GiB".
    """
    for pattern in _MEMORY:
        if match := pattern.search(row.words):
            number = float(match["number"].rstrip("."))
            return number * (1024 if match["unit"].startswith("g") else 1)
    return None
