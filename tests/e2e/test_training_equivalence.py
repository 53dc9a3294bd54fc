"""Training gives the same losses on 1, 2 and 4 workers at the same global batch."""

import json
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("equivalence_worker.py")
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-9}

Losses = dict[str, list[float]]


@pytest.fixture(scope="module")
def train(slipstream_run, tmp_path_factory):
    def run(num_workers: int, *arguments: str) -> Losses:
        output = tmp_path_factory.mktemp("losses") / "losses.json"
        workers = slipstream_run(num_workers, WORKER, str(output), *arguments)
        text, _ = workers.communicate(timeout=240)
        assert workers.returncode == 0, text
        return json.loads(output.read_text())

    return run


@pytest.fixture(scope="module")
def one_worker(train) -> Losses:
    return train(1)


def largest_difference(left: list[float], right: list[float]) -> float:
    assert len(left) == len(right) == 50
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


@pytest.mark.multiprocess
@pytest.mark.parametrize("num_workers", [2, 4])
def test_losses_are_those_of_one_worker(train, one_worker, num_workers) -> None:
    losses = train(num_workers)
    for dtype, tolerance in TOLERANCE.items():
        assert one_worker[dtype][-1] < one_worker[dtype][0] / 2
        assert largest_difference(losses[dtype], one_worker[dtype]) < tolerance


@pytest.mark.multiprocess
def test_workers_that_exchange_nothing_are_told_apart(train, one_worker) -> None:
    losses = train(2, "--alone")
    for dtype, tolerance in TOLERANCE.items():
        assert largest_difference(losses[dtype], one_worker[dtype]) > 100 * tolerance
