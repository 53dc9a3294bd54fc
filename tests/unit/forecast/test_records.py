"""Records of forecasts are plain values, which many simulations share."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic")

from slipstream import forecast
from slipstream.forecast.simulate.compute import Rates, Runtime
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import WireRates
from slipstream.forecast.work.strategy import Optimizer, Strategy
from slipstream.forecast.work.workload import Product

# A replay changes the pieces, pools and runs of memory.
CHANGED = {"SegmentPiece", "SegmentPool", "_Run"}


def _records() -> Iterator[type]:
    for module in pkgutil.walk_packages(forecast.__path__, "slipstream.forecast."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and is_dataclass(found) and found.__module__ == module.name:
                yield found


RECORDS = [each for each in _records() if each.__name__ not in CHANGED]


def test_records_have_no_room_for_more_and_cannot_be_changed():
    assert len(RECORDS) > 80
    for record in RECORDS:
        assert "__slots__" in vars(record), record
        name = fields(record)[0].name
        with pytest.raises(AttributeError):
            setattr(object.__new__(record), name, None)


def test_a_strategy_is_one_device_and_momentum_unless_more_is_asked_for():
    plain = Strategy()
    assert (plain.ranks, plain.global_batch, plain.apart) == (1, 1, 1)
    assert (plain.zero, plain.servers, plain.codec, plain.layers) == (0, 0, "none", ())
    assert (plain.checkpoint, plain.sequence, plain.across) == (False, False, False)
    # PyTorch's buckets have 25 MiB.
    assert plain.bucket_bytes == 26214400
    numbers = {"SGD": 0, "MOMENTUM": 1, "ADAM": 2}
    assert {each.name: each.value for each in Optimizer} == numbers


def test_what_is_not_said_of_a_job_is_usual():
    usual = {each.name: each.default for each in fields(TrainingJob)}
    assert usual["precision"] == "fp32"
    assert usual["optimizer"] is Optimizer.MOMENTUM
    assert (usual["gradient_bytes"], usual["pace"], usual["input_rate"]) == (4, 1.0, None)
    assert usual["channels_first"] is False
    product = Product(2, 3, 5, 7)
    assert (product.window, product.fill, product.odd) == (1, 1.0, False)
    assert product.flops == 2 * 2 * 3 * 5 * 7


def test_shares_that_are_not_fitted_are_shares():
    rates, runtime, wire = Rates(), Runtime(), WireRates()
    shares = [getattr(rates, each.name) for each in fields(Rates)[:7]]
    shares += [rates.depthwise, rates.gather, wire.inside, wire.between, runtime.overlap]
    assert all(0 < share < 1 for share in shares)
    assert rates.vector_half_sum is None
    factors = runtime.memory, runtime.compute, runtime.batch_norm, runtime.half_batch_norm
    assert factors == (1, 1, 1, 1)
    assert (runtime.flash, runtime.composed, runtime.update_us) == (True, False, 0.0)
