"""`slipstream bench infer` on a tiny model of a user's, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli import in_process, usage_error

from slipstream import infer
from slipstream.bench.infer.contenders import EXPORTED
from slipstream.bench.infer.fashion_mnist import write_images
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.models import model_folder
from slipstream.bench.infer.prepare import SECONDS
from slipstream.bench.infer.processes import cores_of, run_to_end
from slipstream.infer import ImageOptions

MODELS = '''
import numpy as np
import torch
from torch import nn

from slipstream.bench.zoo import ZooModel

def build():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )
    return net.eval().requires_grad_(False)

def inputs(seed):
    random = np.random.default_rng(seed)
    return {"image": random.standard_normal((1, 3, 32, 32), np.float32)}

class Brightest(nn.Module):
    """Says which of four quarters is the brightest: it knows without training."""

    def forward(self, image):
        return nn.functional.adaptive_avg_pool2d(image, 2).flatten(1)

def quarters():
    return Brightest(), torch.zeros(1, 1, 28, 28)

TINY = ZooModel(name="tiny", build=build, inputs=inputs, outputs=("logits",))
'''

PROGRAM = str(Path(sys.executable).with_name("slipstream"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a user's folder with models, in which commands run."""
    pytest.importorskip("torch")
    (tmp_path / "my_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_models", None)


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [PROGRAM, "bench", "infer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def exported(cache: Path, model: str) -> Path:
    """Return the file of a model that a benchmark before this one left in the cache."""
    with model_folder(cache, model) as folder:
        job = InferJob(model=model, folder=str(folder), file=EXPORTED)
        run_to_end("infer.prepare", job.as_text(), cores_of(1))
        return folder / EXPORTED


@pytest.mark.slow("bench of inference")
def test_contenders_are_measured_and_files_in_the_cache_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(tmp_path)
    made = exported(tmp_path / "cache", "my_models:TINY")
    before = made.stat().st_mtime_ns
    short = ("--rounds", "2", "--turn-time", "10ms", "--search-time", "500ms", "--cache", "cache")
    short += ("--unseen", "5")
    peers = ("--peers", "pytorch,ort-int8,openvino")
    done = program("my_models:TINY", *peers, *short, "-o", "out/infer.json")
    assert done.returncode == 0, done.stderr
    for text in ("TINY: 0.02 GFLOP", "PyTorch", "OpenVINO", "geometric", "target"):
        assert text in done.stdout

    (model,) = json.loads((tmp_path / "out" / "infer.json").read_text())["models"]
    found = {each["contender"]: each for each in model["contenders"]}
    assert list(found) == ["pytorch", "ort-int8", "openvino", "ours-fp32", "ours"]
    assert found["pytorch"]["snr_db"] == 200  # the reference itself
    assert all(found[name]["snr_db"] > 90 for name in ("openvino", "ours-fp32"))
    assert 15 < found["ort-int8"]["snr_db"] < 70
    assert found["ours"]["snr_db"] >= model["asked_db"] - 1
    assert model["unseen_db"] > 15
    assert "on 5 other inputs" in done.stdout
    assert all(len(each["turns"]) == 2 for each in found.values())
    assert all(each["peak_bytes"] > 2e7 for each in found.values())

    assert made.stat().st_mtime_ns == before
    assert list(tmp_path.glob("cache/*/ort-int8.onnx")) == [made.with_name("ort-int8.onnx")]


@pytest.mark.slow("bench of inference")
def test_a_peer_that_fails_is_one_line_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(tmp_path)
    broken = exported(tmp_path / "cache", "my_models:TINY").with_name("ort-int8.onnx")
    broken.write_bytes(b"no model")
    broken.with_name(broken.name + SECONDS).write_text("1.0")
    short = ("--rounds", "2", "--turn-time", "10ms", "--search-time", "500ms", "--cache", "cache")
    done = program("my_models:TINY", "--peers", "ort,ort-int8", *short, "--json")
    assert done.returncode == 1, done.stderr
    assert "ONNX Runtime int8, static is left out, because it failed" in done.stderr
    assert "Traceback" not in done.stderr
    printed = json.loads(done.stdout)
    (model,) = printed["models"]
    assert [each["contender"] for each in model["contenders"]] == ["ort", "ours-fp32", "ours"]
    assert len(printed["failures"]) == 1


def test_time_and_cost_of_an_image_at_a_required_accuracy(tmp_path: Path):
    labels = np.arange(24) % 4
    images = np.full((24, 28, 28), 40, np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[14 * row : 14 * row + 14, 14 * column : 14 * column + 14] = 200
    write_images(tmp_path / "pictures", images, labels.astype(np.uint8))
    reading = ImageOptions(size=28, mean=(0.5,), std=(0.5,))
    infer.compile(
        "my_models:quarters",
        "q.slip",
        infer.CompileOptions(images=reading, pixels=True, seconds=0.5, threads=1),
    )

    options = ("--images", "pictures", "--price", "0.1", "-o", "cost.json")
    arguments = ("bench", "infer", "q.slip", *options)
    done = in_process(*arguments, "--accuracy", "100,100")
    assert done.code == 0, done.stderr
    assert "24 images" in done.stdout
    (model,) = json.loads((tmp_path / "cost.json").read_text())["models"]
    assert model["top1"] == 1.0
    assert model["mean_seconds"] > 0
    assert model["cost_of_an_image"] == pytest.approx(model["mean_seconds"] * 0.1 / 3600)

    (tmp_path / "pictures" / "0").rename(tmp_path / "pictures" / "7")  # six wrong answers
    assert in_process(*arguments, "--accuracy", "80").code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my_models:TINY", "--peers", "turbo"], "the peer is 'turbo'"),
        (["my_models:TINY", "--threads", "4096"], "the cores of this process"),
        (["my_models:build"], "has to be a ZooModel"),
        (["no.slip", "--images", "."], "has no JPEG files"),
        (["--images", "."], "no model is given"),
        (["no.slip", "--images", ".", "--rounds", "3"], "--rounds has no effect with --images"),
        (["my_models:TINY", "--price", "1"], "--price has no effect without --images"),
    ],
)
def test_usage_errors_are_one_line(arguments: list[str], message: str):
    assert message in usage_error("bench", "infer", *arguments)


def test_a_usage_error_ends_the_program_with_2():
    done = program("resnet51")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("slipstream: the model is 'resnet51'")
