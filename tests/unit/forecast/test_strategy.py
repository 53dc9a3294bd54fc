"""Strategies say what is out of range, and how many devices and samples they take."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.errors import UsageError
from slipstream.forecast.work.strategy import WIRE_SHARE, Exchange, Strategy

DEGREES = (
    "data", "tensor", "context", "expert", "pipeline", "virtual", "micro_batch", "micro_batches",
    "period",
)  # fmt: skip


@pytest.mark.parametrize("name", DEGREES)
def test_degrees_are_one_at_least(name: str):
    with pytest.raises(UsageError, match=f"{name} is 0; at least 1 is needed"):
        Strategy(**{name: 0})
    assert getattr(Strategy(**{name: 1}), name) == 1


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_stages_of_zero(zero: int):
    assert Strategy(zero=zero).zero == zero


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"zero": 4}, "zero is 4; allowed are 0, 1, 2 and 3"),
        ({"zero": -1}, "zero is -1"),
        ({"codec": "fp8"}, "codec is 'fp8'; allowed are none, fp16, bf16, int8"),
        ({"data": 6, "expert": 4}, "expert is 4; .* it must divide data, 6"),
    ],
)
def test_what_is_out_of_range_is_named(changes: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=says):
        Strategy(**changes)


def test_devices_and_samples_are_products_of_degrees():
    found = Strategy(data=6, tensor=2, context=5, pipeline=7, expert=3, virtual=2, micro_batch=4,
                     micro_batches=11)  # fmt: skip
    assert found.ranks == 6 * 2 * 5 * 7
    assert found.global_batch == 6 * 4 * 11


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({}, 8),
        ({"zero": 1}, 8),
        ({"zero": 2}, 1),
        ({"context": 2}, 1),
        ({"expert": 2, "data": 2}, 1),
        ({"period": 4}, 8),
        ({"period": 4, "exchange": Exchange.LOCAL}, 32),
    ],
)
def test_micro_batches_until_ranks_wait(changes: dict[str, Any], apart: int):
    assert Strategy(micro_batches=8, **changes).apart == apart


def test_codecs_leave_their_share_on_the_wire():
    # One byte instead of four, and an fp32 scale for each block of 128 numbers.
    assert WIRE_SHARE["int8"] * 4 * 128 == 128 + 4
    assert WIRE_SHARE["fp16"] * 4 * 2048 == 2 * 2048 + 4
    assert (WIRE_SHARE["none"], WIRE_SHARE["bf16"]) == (1.0, 0.5)
