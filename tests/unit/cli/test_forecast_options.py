"""Texts of a command line as numbers."""

from __future__ import annotations

import pytest

from slipstream.cli.forecast.options import parse_count
from slipstream.errors import UsageError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5T", 1.5e12), ("15e12", 15e12), ("300,000", 3e5), ("2b", 2e9), ("2G", 2e9),
        ("7 M", 7e6), ("1.2E9", 1.2e9), ("12k", 12e3), ("5", 5.0),
    ],
)  # fmt: skip
def test_counts_have_units_or_exponents(text: str, number: float) -> None:
    assert parse_count(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "T", "1.5Q", "-3", "1e-3", "1.5TB", "nan"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"allowed: numbers such as 1\.5T, 15e12"):
        parse_count(text)
