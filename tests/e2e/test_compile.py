"""`slipstream compile` from a model of PyTorch to its results, as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli import in_process, usage_error
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

MODULES = ("user_models", "user_data")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a user's folder with models and data, in which commands run."""
    pytest.importorskip("torch")
    (tmp_path / "user_models.py").write_text(MODELS)
    (tmp_path / "user_data.py").write_text(LOADER)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return slipstream("compile", *arguments)


def slipstream(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slipstream in a process of its own."""
    command = [str(Path(sys.executable).with_name("slipstream")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def images(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return list(random.standard_normal((count, 1, 3, 32, 32)).astype(np.float32))


@pytest.mark.slow("slipstream compile of a net")
def test_a_conv_net_with_data_is_compiled_loaded_and_right(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    done = program(
        "user_models:conv",
        *("-o", "out/conv.slip"),
        *("--data", "user_data.py:load"),
        *("--snr", "15"),
        *("--search-time", "8s"),
        *("--threads", "1"),
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert "written: out/conv.slip, " in done.stderr
    report = json.loads(done.stdout)
    titles = {f"{item['engine']} {item['precision']}" for item in report["candidates"]}
    assert titles >= {"openvino int8", "native fp32", "onnxruntime fp32"}
    assert report["candidates"][0]["state"] == "chosen"
    assert any(item["name"] == "silu" for item in report["rewrites"])

    monkeypatch.syspath_prepend(folder)
    import torch
    import user_models

    module = user_models.conv()[0].eval()
    with infer.load(folder / "out" / "conv.slip") as model:
        assert model.report.model_dump(mode="json") == report
        for image, found in zip(images(5), model.batch(images(5)), strict=True):
            with torch.no_grad():
                right = module(torch.from_numpy(image)).numpy()
            noise = np.square(found - right).sum() / np.square(right).sum()
            assert noise < 10**-1.3


def test_an_mlp_without_data_stays_in_floating_point(folder: Path):
    done = in_process(
        *("compile", "user_models:mlp", "-o", "mlp.slip", "--search-time", "2s", "--threads", "2")
    )
    assert done.code == 0, done.stderr
    assert "int8 was not tried" in done.stdout
    assert " int8" not in done.stdout.replace("int8 was not tried", "").replace("so int8", "")
    with infer.load(folder / "mlp.slip") as model:
        assert model.manifest.recipe.precision in ("fp32", "bf16")
        assert model(np.ones((4, 64), np.float32)).shape == (4, 8)


def test_a_limit_that_no_search_can_keep_is_said(folder: Path):
    done = in_process(
        *(
            "compile",
            "user_models:mlp",
            "-o",
            "mlp.slip",
            "--search-time",
            "0.001s",
            "--threads",
            "1",
        )
    )
    assert done.code == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "Note: the time did not suffice to make all candidates ready" in words
    assert (
        "and 0.001 s were allowed, because a step that has begun is finished; the longest" in words
    )
    warning = " ".join(done.stderr.split())
    assert "the search was limited to 0.001 s: reading the model took" in warning


@pytest.mark.slow("slipstream compile of a net")
def test_a_net_for_images_takes_files_and_gives_labels(folder: Path):
    images = folder / "images"
    images.mkdir()
    random = np.random.default_rng(3)
    for number in range(24):
        pixels = random.integers(0, 256, (48, 64, 3), np.uint8)
        Image.fromarray(pixels).save(images / f"{number}.jpg")
    done = in_process(
        *("compile", "user_models:conv"),
        *("-o", "conv.slip"),
        *("--data", "images"),
        *("--pixels", "--top", "3", "--size", "36"),
        *("--snr", "15"),
        *("--search-time", "3s"),
        *("--threads", "1"),
    )
    assert done.code == 0, done.stderr
    for text in ("native int8", "chosen", "Rewrites turned"):
        assert text in done.stdout
    files = [path.read_bytes() for path in sorted(images.iterdir())]
    with infer.load(folder / "conv.slip") as model:
        assert "uint8 (1, 32, 32, 3)" in repr(model)
        for found, file in zip(model.stream(files), files, strict=True):
            assert found["labels"].shape == found["scores"].shape == (1, 3)
            np.testing.assert_array_equal(found["labels"], model(file)["labels"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["user_models:conv", "--search-time", "soon"], "allowed: a number with a unit"),
        (["user_models:conv", "--budget", "much"], "percentage points"),
        (["user_models:conv", "--engines", "turbo"], "no engine is called turbo"),
        (["user_models:conv", "--without", "magic"], "no rewrite is called 'magic'"),
        (["user_models:conv", "--boxes", "iou=much"], "iou=0.45,score=0.25,most=100"),
        (["user_models:conv", "--top", "11"], "top is 11; allowed: 1 to 10"),
        (["user_models:mlp", "--pixels"], "pixels need exactly one of shape"),
        (["user_models:conv", "-o", "user_data.py/m.slip"], "user_data.py is no folder"),
        (["nowhere.py:make"], "there is no file nowhere.py; allowed: package.module:function or"),
    ],
)
def test_usage_errors_are_one_line(folder: Path, arguments: list[str], message: str):
    assert message in usage_error("compile", *arguments)
    assert not list(folder.glob("*.slip*"))


def test_a_usage_error_ends_the_program_with_2(folder: Path):
    done = program("no.onnx")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("slipstream: ")
    assert "no.onnx" in line
    assert not list(folder.glob("*.slip*"))


def test_no_candidate_is_another_code(folder: Path):
    done = in_process("compile", "user_models:mlp", "--engines", "native", "--snr", "200")
    assert done.code == 1
    assert done.stderr.startswith("slipstream: ")
    assert "no candidate" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("*.slip*"))


@pytest.mark.slow("slipstream compile of a net")
def test_an_interrupted_compilation_leaves_nothing_and_says_so(folder: Path):
    begins = "def begins():\n    open('begun', 'w').close()\n    return mlp()\n"
    (folder / "user_models.py").write_text(MODELS + begins)
    command = [str(Path(sys.executable).with_name("slipstream")), "compile", "user_models:begins"]
    compiling = subprocess.Popen(
        [*command, "-o", "mlp.slip", "--search-time", "60s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not (folder / "begun").exists():
            assert compiling.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)  # the model is made, and the compilation has not ended
        compiling.send_signal(signal.SIGINT)
        printed, told = compiling.communicate(timeout=60)
    finally:
        compiling.kill()
        compiling.wait()
    assert (compiling.returncode, printed) == (130, "")
    assert told == "interrupted: the compilation has not ended, and mlp.slip is as before\n"
    assert not list(folder.glob("*.slip*"))
    with pytest.raises(ProcessLookupError):  # no process of its group is left
        os.killpg(compiling.pid, 0)


def test_the_list_names_engines_and_rewrites():
    done = in_process("compile", "--list")
    assert done.code == 0
    for name in ("onnxruntime", "openvino", "native", "inductor", "squeeze-excite", "attention"):
        assert name in done.stdout


@pytest.mark.slow("slipstream compile of a net")
def test_without_a_gpu_the_commands_for_gpus_say_so():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    refused = program("user_models:mlp", "-o", "mlp.slip", "--device", "cuda")
    assert refused.returncode == 1
    assert "no NVIDIA GPU" in refused.stderr
    assert "--device cpu" in refused.stderr
    assert program("user_models:mlp", "-o", "mlp.slip", "--search-time", "3s").returncode == 0
    refused = slipstream("serve", "mlp.slip", "--device", "cuda:0,cuda:1", "--port", "0")
    assert refused.returncode == 2
    assert "mlp.slip runs on cpu" in refused.stderr
    assert "compile the model with --device cuda" in refused.stderr


def test_processes_of_a_server_end_if_a_model_is_missing():
    """The server once waited for ever, because the processes were still starting."""
    done = slipstream("serve", "missing.slip", "--replicas", "2", "--port", "0")
    assert done.returncode == 2
    assert "missing.slip does not exist; make it with slipstream compile" in done.stderr
