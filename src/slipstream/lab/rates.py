"""Bit rates that the links of a lab may have."""

from slipstream.errors import UsageError
from slipstream.units import ALLOWED_BIT_RATES, parse_bit_rate

# bits per second; below it, one full frame takes longer than most timeouts allow
MIN_RATE = 100_000
MAX_RATE = 100_000_000_000


def parse_rate(text: str, name: str = "rate") -> int:
    """Return the rate of a link in bits per second.

    Args:
        text: Rate in the format of `parse_bit_rate`, such as "1gbit".
        name: Name of the argument that has this rate, for the error message (default "rate").

    Raises:
        UsageError: the text is not a rate, or the rate is not between 100kbit and 100gbit.
    """
    rate = parse_bit_rate(text, name)
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UsageError(
            f"{name} is {text!r}; allowed: {ALLOWED_BIT_RATES}, from 100kbit to 100gbit"
        )
    return rate
