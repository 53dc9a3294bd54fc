"""Units of the measured number of a row, and the memory that it states."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstream.forecast.validate.row import TableRow, UnreadableError
from slipstream.forecast.validate.units import RowUnit, memory_mb, unit, value


@pytest.mark.parametrize(
    ("text", "factor", "tokens", "per_device"),
    [
        ("images/sec", 1.0, False, False),
        (" Imgs per second ", 1.0, False, False),
        ("sequences/min", 1 / 60, False, False),
        ("samples / hour", 1 / 3600, False, False),
        ("examples/ms", 1000.0, False, False),
        ("tokens/day/GPU", 1 / 86400, True, True),
        ("token per s per device", 1.0, True, True),
        ("TPS", 1.0, True, False),
        ("tps per rank", 1.0, True, True),
        ("images/sec/chip", 1.0, False, True),
    ],
)
def test_rates_count_samples_or_tokens(text: str, factor: float, tokens: bool, per_device: bool):
    found = unit(text)
    assert found == RowUnit(kind="rate", factor=found.factor, tokens=tokens, per_device=per_device)
    assert found.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("text", "kind", "seconds"),
    [
        ("ms/iteration", "period", 1e-3),
        ("milliseconds per step", "period", 1e-3),
        ("sec/batch", "period", 1.0),
        ("minutes to 75.9%", "target", 60.0),
        ("hours for 90 epochs", "target", 3600.0),
        ("days to train", "target", 86400.0),
        ("speedup vs 1 GPU", "speedup", 1.0),
        ("speed-up over a single device", "speedup", 1.0),
    ],
)
def test_times_and_speedups(text: str, kind: str, seconds: float):
    found = unit(text)
    assert (found.kind, found.factor) == (kind, seconds)
    assert not found.tokens
    assert not found.per_device


@pytest.mark.parametrize(("text", "says"), [("x Horovod", "ratio of two"), ("GB/s", "the unit is")])
def test_other_units_are_refused(text: str, says: str):
    with pytest.raises(UnreadableError, match=says):
        unit(text)


@pytest.mark.parametrize(("text", "number"), [("1,234.5", 1234.5), (" 1e-3 ", 1e-3), ("7", 7)])
def test_measured_numbers_may_have_commas(text: str, number: float):
    assert value(text) == number


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "", "1-2"])
def test_a_measured_number_is_positive(text: str):
    with pytest.raises(UnreadableError, match="a positive number can be read"):
        value(text)


@pytest.mark.parametrize(
    ("text", "mb"),
    [
        ("mem_MB=1528", 1528),
        ("mem_GiB=71.9", 71.9 * 1024),
        ("memory 82.4 GiB", 82.4 * 1024),
        ("(30338 MB/GPU)", 30338),
        ("72.7 GiB", 72.7 * 1024),
        ("30 GB per GPU.", 30 * 1024),
        ("1000 MB peak mem", 1000),
        ("80GB", None),
        ("", None),
    ],
)
def test_memory_is_read_in_mib(row_of: Callable[..., TableRow], text: str, mb: float | None):
    found = memory_mb(row_of(model=f"ResNet-50 {text}"))
    assert found == (None if mb is None else pytest.approx(mb))
