"""Training gives the same losses on 1, 2 and 4 workers at the same global batch."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("equivalence_worker.py")
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-9}

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow("training as on one worker")]

Losses = dict[str, list[float]]
Train = Callable[..., dict[str, Losses]]


@pytest.fixture(scope="module")
def train(slipstream_run, tmp_path_factory) -> Train:
    def run(num_workers: int, *arguments: str) -> dict[str, Losses]:
        output = tmp_path_factory.mktemp("losses") / "losses.json"
        workers = slipstream_run(num_workers, WORKER, str(output), *arguments)
        text, _ = workers.communicate(timeout=240)
        assert workers.returncode == 0, text
        return json.loads(output.read_text())

    return run


@pytest.fixture(scope="module")
def one_worker(train: Train) -> Losses:
    return train(1)["together"]


def largest_difference(left: list[float], right: list[float]) -> float:
    assert len(left) == len(right) == 50
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


def test_losses_of_two_are_those_of_one_unless_they_exchange_nothing(
    train: Train, one_worker: Losses
) -> None:
    ways = train(2, "--also-alone")
    assert_same(ways["together"], one_worker)
    for dtype, tolerance in TOLERANCE.items():
        assert largest_difference(ways["alone"][dtype], one_worker[dtype]) > 100 * tolerance


def test_losses_of_four_are_those_of_one(train: Train, one_worker: Losses) -> None:
    assert_same(train(4)["together"], one_worker)


def assert_same(losses: Losses, of_one: Losses) -> None:
    for dtype, tolerance in TOLERANCE.items():
        assert of_one[dtype][-1] < of_one[dtype][0] / 2
        assert largest_difference(losses[dtype], of_one[dtype]) < tolerance
