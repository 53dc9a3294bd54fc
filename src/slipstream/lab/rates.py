"""Rates that a link of a lab may have."""

from slipstream.errors import UsageError
from slipstream.units import ALLOWED_BIT_RATES, parse_bit_rate

MIN_RATE = 100_000  # at a lower rate one full frame takes longer than most timeouts allow
MAX_RATE = 100_000_000_000


def parse_rate(text: str, name: str = "rate") -> int:
    """Return the rate of a link in bits per second.

    Args:
        text: Rate as `parse_bit_rate` reads it, such as "1gbit".
        name: Name of the rate, for the error message (default "rate").

    Raises:
        UsageError: the text is no rate, or the rate is not from 100kbit to 100gbit.
    """
    rate = parse_bit_rate(text, name)
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UsageError(
            f"{name} is {text!r}; allowed: {ALLOWED_BIT_RATES}, from 100kbit to 100gbit"
        )
    return rate
