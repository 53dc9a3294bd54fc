"""Rates of links as people and tc write them: 1gbit, 250mbit, 12.5mbit."""

import re
from decimal import Decimal

from slipstream.errors import UsageError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)bit", re.IGNORECASE)

MIN_RATE = 100_000  # slower, and one full frame takes longer than most timeouts allow
MAX_RATE = 100_000_000_000

ALLOWED = "a number with kbit, mbit or gbit, such as 1gbit or 12.5mbit, from 100kbit to 100gbit"


def parse_rate(text: str, name: str = "rate") -> int:
    """Return the bits per second that a text means.

    Args:
        text: such as 1gbit; k, m and g are powers of 1000.
        name: what the rate is of, for the message.

    Raises:
        UsageError: the text is no rate, or not from 100kbit to 100gbit.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is not None:
        rate = int(Decimal(match[1]) * _UNITS[match[2].lower()])
        if MIN_RATE <= rate <= MAX_RATE:
            return rate
    raise UsageError(f"{name} is {text!r}; allowed: {ALLOWED}")


def format_rate(bits_per_second: float) -> str:
    """Return the shortest way to write a rate, to three digits behind the point."""
    for unit in ("g", "m", "k"):
        if bits_per_second >= _UNITS[unit]:
            return f"{bits_per_second / _UNITS[unit]:.3f}".rstrip("0").rstrip(".") + f"{unit}bit"
    return f"{bits_per_second:.0f}bit"
