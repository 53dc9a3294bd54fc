"""`slipstream compile` from a model of PyTorch to its results, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slipstream import infer

MODELS = """
import torch
from torch import nn

def conv():
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.SiLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    return net, torch.zeros(1, 3, 32, 32)

def mlp():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)), torch.zeros(4, 64)
"""
LOADER = """
import numpy as np

def load():
    random = np.random.default_rng(0)
    for _ in range(24):
        yield random.standard_normal((3, 32, 32)).astype("float32")
"""

Compile = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's folder, with models and data of their own."""
    pytest.importorskip("torch")
    (tmp_path / "user_models.py").write_text(MODELS)
    (tmp_path / "user_data.py").write_text(LOADER)
    return tmp_path


@pytest.fixture
def compile_(folder: Path) -> Compile:
    """Runs the command in the user's folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("slipstream")), "compile", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)

    return run


def images(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return list(random.standard_normal((count, 1, 3, 32, 32)).astype(np.float32))


def test_a_conv_net_with_data_is_compiled_loaded_and_right(compile_: Compile, folder: Path):
    done = compile_(
        "user_models:conv",
        *("-o", "conv.slip"),
        *("--data", "user_data:load"),
        *("--snr", "15"),
        *("--time", "10s"),
        *("--threads", "1"),
        *("--json", "out/report.json"),
    )
    assert done.returncode == 0, done.stderr
    for text in ("openvino int8", "native fp32", "onnxruntime fp32", "chosen", "Rewrites made"):
        assert text in done.stdout
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["candidates"][0]["state"] == "chosen"
    assert any(item["name"] == "silu" for item in report["rewrites"])

    sys.path.insert(0, str(folder))
    try:
        import torch
        import user_models
    finally:
        sys.path.remove(str(folder))
    module = user_models.conv()[0].eval()
    with infer.load(folder / "conv.slip") as model:
        assert model.report.model_dump(mode="json") == report
        for image, found in zip(images(5), model.batch(images(5)), strict=True):
            with torch.no_grad():
                right = module(torch.from_numpy(image)).numpy()
            noise = np.square(found - right).sum() / np.square(right).sum()
            assert noise < 10**-1.3


def test_an_mlp_without_data_stays_in_floating_point(compile_: Compile, folder: Path):
    done = compile_("user_models:mlp", "-o", "mlp.slip", "--time", "5s", "--threads", "2")
    assert done.returncode == 0, done.stderr
    assert "int8 was not tried" in done.stdout
    assert " int8" not in done.stdout.replace("int8 was not tried", "").replace("so int8", "")
    with infer.load(folder / "mlp.slip") as model:
        assert model.manifest.recipe.precision in ("fp32", "bf16")
        assert model(np.ones((4, 64), np.float32)).shape == (4, 8)


def test_a_net_for_pictures_takes_files_and_gives_labels(compile_: Compile, folder: Path):
    pictures = folder / "pictures"
    pictures.mkdir()
    random = np.random.default_rng(3)
    for number in range(12):
        pixels = random.integers(0, 256, (48, 64, 3), np.uint8)
        Image.fromarray(pixels).save(pictures / f"{number}.jpg")
    done = compile_(
        "user_models:conv",
        *("-o", "conv.slip"),
        *("--data", "pictures"),
        *("--pixels", "--top", "3", "--size", "36"),
        *("--snr", "15"),
        *("--time", "8s"),
        *("--threads", "1"),
    )
    assert done.returncode == 0, done.stderr
    assert "native int8" in done.stdout
    files = [path.read_bytes() for path in sorted(pictures.iterdir())]
    with infer.load(folder / "conv.slip") as model:
        assert "uint8 (1, 32, 32, 3)" in repr(model)
        for found, file in zip(model.stream(files), files, strict=True):
            assert found["labels"].shape == found["scores"].shape == (1, 3)
            np.testing.assert_array_equal(found["labels"], model(file)["labels"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no.onnx"], 2, "no.onnx"),
        (["user_models:conv", "--time", "soon"], 2, "allowed: 90s, 5m, 1h"),
        (["user_models:conv", "--budget", "much"], 2, "percentage points"),
        (["user_models:conv", "--engine", "turbo"], 2, "no engine is called turbo"),
        (["user_models:conv", "--without", "magic"], 2, "no rewrite is called 'magic'"),
        (["user_models:conv", "--boxes", "iou=much"], 2, "iou=0.45,score=0.25,most=100"),
        (["user_models:conv", "--top", "11"], 2, "top is 11; allowed: 1 to 10"),
        (["user_models:mlp", "--pixels"], 2, "pixels need one of shape"),
        (["user_models:conv", "-o", "no/folder/m.slip"], 2, "there is no folder"),
        (["user_models:mlp", "--engine", "native", "--snr", "200"], 1, "no candidate"),
    ],
)
def test_errors_are_one_line_and_a_code(
    compile_: Compile, folder: Path, arguments: list[str], code: int, message: str
):
    done = compile_(*arguments)
    assert done.returncode == code
    assert done.stderr.startswith("slipstream: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("*.slip*"))


def test_the_list_names_engines_and_rewrites(compile_: Compile):
    done = compile_("--list")
    assert done.returncode == 0
    for name in ("onnxruntime", "openvino", "native", "inductor", "squeeze-excite", "attention"):
        assert name in done.stdout
