"""Time and cost of an image: the arithmetic, what is refused, and pictures written as files."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from slipstream.bench.infer.cost import (
    Cost,
    CostSpec,
    cost_as_json,
    cost_table,
    measure_cost,
    rank_of,
)
from slipstream.bench.infer.fashion_mnist import IMAGES, LABELS, read_test_set, write_images
from slipstream.cli.bench.infer import parse_accuracy
from slipstream.errors import UsageError

SPEC = CostSpec(packages=(Path("a.slip"),), folder=Path("pictures"), top1=0.9, top5=0.99, price=3.6)


def cost(top1: float = 0.91, top5: float = 0.99) -> Cost:
    seconds = (0.001, 0.002, 0.003, 0.006)
    return Cost(package=Path("a.slip"), recipe="native int8", seconds=seconds, top1=top1, top5=top5)


def test_cost_is_time_by_price():
    assert cost().mean == pytest.approx(0.003)
    assert cost().median == pytest.approx(0.0025)
    assert 0.003 < cost().p99 <= 0.006
    assert cost().cost(SPEC) == pytest.approx(0.003 * 3.6 / 3600)
    assert cost().cost(SPEC, 1_000_000) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("top1", "top5", "holds"), [(0.9, 0.99, True), (0.899, 1.0, False), (1.0, 0.98, False)]
)
def test_both_accuracies_are_required(top1: float, top5: float, holds: bool):
    assert cost(top1, top5).is_accurate(SPEC) == holds


def test_the_place_of_a_label_in_scores_and_in_labels():
    scores = np.array([[0.1, 0.5, 0.2, 0.9]], np.float32)
    assert [rank_of(label, scores) for label in range(4)] == [3, 1, 2, 0]
    assert rank_of(3, {"logits": scores}) == 0
    labels = {"labels": np.array([[7, 3]]), "scores": np.array([[0.9, 0.1]], np.float32)}
    assert [rank_of(label, labels) for label in (7, 3, 5)] == [0, 1, 2]


def test_the_table_and_json_have_everything():
    file = io.StringIO()
    Console(file=file, width=100).print(cost_table(SPEC, [cost(), cost(top1=0.5)]))
    text = file.getvalue()
    for part in ("a.slip", "native int8", "91.00%", "required: top-1 90.0%", "yes", "no"):
        assert part in text
    (model,) = json.loads(json.dumps(cost_as_json(SPEC, [cost()])))["models"]
    assert model["mean_seconds"] == pytest.approx(0.003)
    assert model["is_accurate"]


@pytest.mark.parametrize(
    ("text", "shares"), [("92", (0.92, 0.0)), ("92%, 99.5%", (0.92, 0.995)), ("0,0", (0.0, 0.0))]
)
def test_accuracy_is_given_in_percent(text: str, shares: tuple[float, float]):
    assert parse_accuracy(text) == pytest.approx(shares)


@pytest.mark.parametrize("text", ["much", "1,2,3", ""])
def test_other_accuracies_are_refused(text: str):
    with pytest.raises(UsageError, match="percentages such as 92"):
        parse_accuracy(text)


def test_what_cannot_be_measured_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no model is given"):
        CostSpec(packages=(), folder=tmp_path)
    with pytest.raises(UsageError, match="top-1 is 9200%"):
        CostSpec(packages=(Path("a.slip"),), folder=tmp_path, top1=92.0)
    with pytest.raises(UsageError, match=r"has no JPEG files .*fashion_mnist"):
        measure_cost(CostSpec(packages=(Path("a.slip"),), folder=tmp_path))
    with pytest.raises(UsageError, match="there is no folder"):
        measure_cost(CostSpec(packages=(Path("a.slip"),), folder=tmp_path / "no"))


def test_pictures_are_files_in_folders_of_their_labels(tmp_path: Path):
    random = np.random.default_rng(0)
    images = np.kron(random.integers(256, size=(5, 4, 4)), np.ones((1, 7, 7))).astype(np.uint8)
    labels = np.array([3, 0, 3, 9, 0], np.uint8)
    write_images(tmp_path, images, labels)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jpg"))
    assert names == ["0/00001.jpg", "0/00004.jpg", "3/00000.jpg", "3/00002.jpg", "9/00003.jpg"]
    with Image.open(tmp_path / "3" / "00002.jpg") as file:
        assert file.mode == "L"
        again = np.asarray(file).astype(int)
    assert np.abs(again - images[2]).mean() < 4


def test_the_test_set_is_read_as_it_is_distributed(tmp_path: Path):
    pixels = np.arange(2 * 28 * 28, dtype=np.uint8)
    (tmp_path / IMAGES).write_bytes(gzip.compress(bytes(16) + pixels.tobytes()))
    (tmp_path / LABELS).write_bytes(gzip.compress(bytes(8) + bytes([4, 2])))
    images, labels = read_test_set([tmp_path / "elsewhere", tmp_path])
    assert (images.reshape(-1) == pixels).all()
    assert list(labels) == [4, 2]
    with pytest.raises(UsageError, match="dataset-fashion-mnist"):
        read_test_set([tmp_path / "elsewhere"])
