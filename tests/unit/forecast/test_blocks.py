"""The blocks that pipelines follow."""

import pytest

from slipstream.forecast.trace.precision import traced
from slipstream.forecast.work.blocks import blocks
from slipstream.forecast.work.workload import TrainingPhase


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_blocks_run_one_after_the_other_and_back_again(dropout: float):
    sizes = {"hidden": 64, "heads": 4, "layers": 12, "dropout": dropout}
    operators = traced("gpt2", 2, sizes=sizes, inputs={"length": 16}).operators
    count, places = blocks(operators)
    forward = sum(operator.phase is TrainingPhase.FORWARD for operator in operators)
    assert count == 12
    assert places[:forward] == sorted(places[:forward])
    assert places[forward:] == sorted(places[forward:], reverse=True)
    # Blocks are alike, so as many operators of each are in both passes.
    for part in (places[:forward], places[forward:]):
        middle = [part.count(place) for place in range(1, count - 1)]
        assert len(set(middle)) == 1


def test_what_is_before_and_after_residual_blocks_counts_if_it_is_of_the_list():
    operators = traced("resnet18", 2, sizes={}, inputs={}).operators
    # A stem, a pooling and eight residual blocks.
    assert blocks(operators)[0] == 10


def test_a_model_without_lists_is_one_block():
    count, places = blocks(traced("ncf", 8, sizes={}, inputs={}).operators)
    assert len(places) > 0
    assert set(places) == set(range(count))
