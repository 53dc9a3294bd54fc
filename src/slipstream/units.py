"""Parsers and formatters of durations, byte sizes and bit rates.

All commands and options use these parsers, so they all allow the same spellings.
"""

from __future__ import annotations

import re
from decimal import Decimal

from slipstream.errors import UsageError

MIB = 2**20
GIB = 2**30

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_BINARY = {"ki": 2**10, "mi": MIB, "gi": GIB}
_SECONDS = {
    "us": 1e-6, "ms": 1e-3,
    "s": 1.0, "sec": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minutes": 60.0,
    "h": 3600.0, "hours": 3600.0,
    "d": 86400.0, "days": 86400.0,
}  # fmt: skip

_BYTE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(_NUMBER + r"\s*([a-z]*)", re.IGNORECASE)
_BYTES = re.compile(_NUMBER + r"\s*(?:([kmg]i?)b?|b?)", re.IGNORECASE)
_BIT_RATE = re.compile(_NUMBER + r"\s*(?:([kmg])|([kmg]?)(?:bit(?:/s|ps)?|bps))", re.IGNORECASE)

ALLOWED_DURATIONS = "a number with a unit: 250ms, 90s, 90m, 36h or 5d"
ALLOWED_BIT_RATES = "a number with kbit, mbit or gbit, such as 1gbit, 12.5mbit or 200Mbit/s"


def parse_duration(text: str, name: str, bare_seconds: bool = False) -> float:
    """Return a duration in seconds.

    Args:
        text: Number with the unit us, ms, s, m (or min), h or d, such as "90s" or "36h".
        name: Name of the quantity, for the error message.
        bare_seconds: Whether a number without a unit means seconds (default False).

    Raises UsageError for a text of another form.
    """
    match = _DURATION.fullmatch(text.strip())
    unit = "" if match is None else match[2].lower() or ("s" if bare_seconds else "")
    if match is None or unit not in _SECONDS:
        raise UsageError(f"the {name} is {text!r}; allowed: {ALLOWED_DURATIONS}")
    return float(match[1]) * _SECONDS[unit]


def parse_bytes(text: str, name: str = "size", least: int = 0) -> int:
    """Return a size in bytes.

    Args:
        text: Number, with k, m or g (powers of 1000), or with ki, mi or gi (powers of 1024); a B
            may follow: "100m", "1.5MB", "64KiB", "4096". The size must be a whole number of bytes.
        name: Name of the quantity, for the error message (default "size").
        least: Smallest size in bytes that is allowed (default 0).

    Raises UsageError for a text of another form, and for a size below `least`.
    """
    match = _BYTES.fullmatch(text.strip())
    if match is not None:
        size = Decimal(match[1]) * (_DECIMAL | _BINARY)[(match[2] or "").lower()]
        if size >= least and size == int(size):
            return int(size)
    raise UsageError(
        f"the {name} is {text!r}; allowed: {least} bytes or more, a number with k, m, g"
        " (powers of 1000) or ki, mi, gi (of 1024), such as 100m or 64KiB"
    )


def parse_bit_rate(text: str, name: str) -> int:
    """Return a rate in bits per second.

    Args:
        text: Number with k, m or g (powers of 1000), with or without "bit", "bit/s" or "bps":
            "1gbit", "200Mbit/s", "200m".
        name: Name of the quantity, for the error message.

    Raises UsageError for a text of another form. "1gb" is not allowed, because it could mean bytes.
    """
    match = _BIT_RATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{name} is {text!r}; allowed: {ALLOWED_BIT_RATES}")
    return int(Decimal(match[1]) * _DECIMAL[(match[2] or match[3] or "").lower()])


def format_bit_rate(bits_per_second: float) -> str:
    """Return the shortest spelling of a rate, with at most three digits after the decimal point."""
    for unit in ("g", "m", "k"):
        if bits_per_second >= _DECIMAL[unit]:
            number = f"{bits_per_second / _DECIMAL[unit]:.3f}".rstrip("0").rstrip(".")
            return f"{number}{unit}bit"
    return f"{bits_per_second:.0f}bit"


def format_bytes(size: float) -> str:
    """Return a size in B, kB, MB or GB, with three significant digits."""
    return _format(size, _BYTE_UNITS)


def format_seconds(seconds: float) -> str:
    """Return a duration in s, ms or us, with three significant digits."""
    return _format(seconds, _TIME_UNITS)


def _format(value: float, units: tuple[tuple[str, float], ...]) -> str:
    """Return a value in the largest unit in which it is 1 or more, rounded to three digits."""
    suitable = (item for item in units if value >= 0.9995 * item[1])
    unit, factor = next(suitable, units[-1])
    number = value / factor
    return f"{number:.3g} {unit}" if number < 999.5 else f"{number:.0f} {unit}"
