"""Quantities are read in their usual spellings; errors name the right spelling."""

import pytest

from slipstream.errors import UsageError
from slipstream.units import (
    format_bit_rate,
    format_bytes,
    format_seconds,
    parse_bit_rate,
    parse_bytes,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25), ("90s", 90), (" 1.5 m ", 90), ("2min", 120), ("36h", 129_600),
        ("5d", 432e3), ("20 us", 2e-5), ("90 sec", 90), ("2 Minutes", 120), ("6 hours", 21_600),
    ],
)  # fmt: skip
def test_a_duration_is_in_seconds(text, seconds):
    assert parse_duration(text, "deadline") == pytest.approx(seconds)


def test_a_bare_number_is_seconds_where_a_command_says_so():
    assert parse_duration("90", "time", bare_seconds=True) == 90
    with pytest.raises(UsageError, match=r"^the time is '90'; allowed: a number .* 36h or 5d$"):
        parse_duration("90", "time")


@pytest.mark.parametrize("text", ["", "soon", "s", "-1s", "1,5h", "3w", "1h30m"])
def test_other_durations_are_refused_with_the_right_spelling(text):
    with pytest.raises(UsageError, match=r"^the deadline is .*; allowed: a number .* 36h or 5d$"):
        parse_duration(text, "deadline")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4", 4), ("17B", 17), ("4k", 4000), ("64ki", 65536), ("64KiB", 65536), ("100M", 10**8),
        ("100 MB", 10**8), ("2GI", 2 << 30), ("1.5m", 1_500_000),
    ],
)  # fmt: skip
def test_a_size_is_in_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "k", "3", "-4k", "4.5", "4kk", "4t", "4bit"])
def test_other_sizes_are_refused_with_the_right_spelling(text):
    with pytest.raises(UsageError, match=r"^the size is .*allowed: 4 bytes or more.*64KiB$"):
        parse_bytes(text, least=4)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1gbit", 10**9), ("250mbit", 250 * 10**6), ("12.5mbit", 12_500_000),
        ("100 kbit", 100_000), ("1000000bit", 10**6), ("2.5Gbit", 2_500_000_000),
        ("200Mbit/s", 200 * 10**6), ("200m", 200 * 10**6), ("200Mbps", 200 * 10**6),
    ],
)  # fmt: skip
def test_a_bit_rate_is_in_bits_per_second(text, rate):
    assert parse_bit_rate(text, "rate") == rate


@pytest.mark.parametrize("text", ["", "fast", "1", "1gb", "-1mbit", "1,5mbit", "1 MB/s"])
def test_other_bit_rates_are_refused_with_the_right_spelling(text):
    with pytest.raises(UsageError, match=r"^uplink is .*1gbit, 12\.5mbit or 200Mbit/s$"):
        parse_bit_rate(text, "uplink")


@pytest.mark.parametrize("text", ["1gbit", "12.5mbit", "999.999mbit", "100kbit"])
def test_a_bit_rate_is_written_as_it_is_read(text):
    assert format_bit_rate(parse_bit_rate(text, "rate")) == text


def test_the_rate_zero_is_written():
    assert format_bit_rate(0) == "0bit"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (65_536, "65.5 kB"), (999_600, "1 MB"),
        (102e6, "102 MB"), (1.5e9, "1.5 GB"), (2.4e12, "2400 GB"),
    ],
)  # fmt: skip
def test_a_size_has_three_digits_and_a_unit(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 us"), (2.34e-5, "23.4 us"), (0.0009999, "1 ms"), (0.25, "250 ms"), (7200, "7200 s")],
)
def test_a_measured_time_has_three_digits_and_a_unit(seconds, text):
    assert format_seconds(seconds) == text
