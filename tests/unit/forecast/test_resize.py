"""Workloads of any micro-batch lie on the line through two that were traced."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.forecast.trace import trace
from slipstream.forecast.work.resize import Resizable, resizable
from slipstream.forecast.work.workload import TrainingPhase, Workload


def _traced(samples: int) -> Workload:
    return trace(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 8)),
        lambda: [torch.empty(samples, 4)], name="two", samples=samples,
    )  # fmt: skip


@pytest.mark.parametrize("samples", [1, 3, 5, 64])
def test_a_micro_batch_is_as_if_it_had_been_traced(samples: int):
    found = Resizable(_traced(2), _traced(4)).at(samples)
    assert found == _traced(samples)


def test_what_was_traced_or_resized_is_kept():
    small, large = _traced(2), _traced(4)
    model = Resizable(small, large)
    assert model.traced == (small, large)
    assert model.at(2) is small
    assert model.at(4) is large
    assert model.at(7) is model.at(7)
    assert [model.share(each) for each in (2, 3, 4, 6)] == [0, 0.5, 1, 2]
    assert model.share(8, context=4) == 0


def test_ranks_that_share_sequences_have_a_share_of_the_rows():
    model = Resizable(_traced(2), _traced(4))
    part = model.at(8, context=4)
    assert part.samples == 8
    assert part.flops(TrainingPhase.FORWARD) == model.at(2).flops(TrainingPhase.FORWARD)
    # There is at least one row, and no value has a negative size.
    least = model.at(1, context=4)
    assert min(each.m for op in least.operators for each in op.products) == 1
    assert min(value.num_bytes for value in least.values) >= 0


def test_both_micro_batches_run_the_same_operators():
    small, large = _traced(2), _traced(4)
    count = len(small.operators)
    fewer = replace(large, operators=large.operators[:-1])
    with pytest.raises(
        UsageError,
        match=f"two runs {count} operators for a micro-batch of 2 and {count - 1} for one of 4",
    ):
        Resizable(small, fewer)
    for one, two in ((large, small), (small, small)):
        with pytest.raises(UsageError, match="a forecast needs the same operators"):
            Resizable(one, two)


def test_the_first_pair_that_a_model_takes_is_traced():
    def at_least(least: int):
        def trace(samples: int) -> Workload:
            if samples < least:
                raise UsageError(f"{samples} are too few")
            return _traced(samples)

        return trace

    for least, samples in ((1, [1, 2]), (2, [2, 4]), (3, [64, 128])):
        assert [each.samples for each in resizable(at_least(least)).traced] == samples
    with pytest.raises(UsageError, match="64 are too few"):
        resizable(at_least(65))
