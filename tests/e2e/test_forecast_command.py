"""`slipstream forecast` as a user calls it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import Done, in_process, usage_error

MODELS = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(14400, 10))

def large():
    return nn.Sequential(*[nn.Linear(32768, 32768) for _ in range(3)])
"""
WIDE = {
    "model_type": "gpt2", "n_embd": 2816, "n_layer": 16, "n_head": 22, "vocab_size": 50257,
    "n_positions": 1024,
}  # fmt: skip
COMMAND = [str(Path(sys.executable).with_name("slipstream")), "forecast"]

Forecast = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder with models, in which commands run."""
    pytest.importorskip("torch")
    (tmp_path / "my_models.py").write_text(MODELS)
    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))  # without earlier runs
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def forecast(folder: Path) -> Forecast:
    """Return a function that runs the command in this process, in the user's folder."""
    del folder
    return lambda *arguments: in_process("forecast", *arguments)


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow("forecast from the command line")
def test_an_architecture_is_ranked_on_clouds(folder: Path) -> None:
    ran = program(
        "resnet18", "--batch", "128", "--gpus", "A100,T4", "--max-devices", "16", "--epochs", "10",
        "--samples", "50000", "--precision", "bf16", "-o", "out/plans.json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    *progress, written = ran.stderr.splitlines()
    assert written == "written: out/plans.json"
    # A line every five seconds reports the progress.
    assert all(re.match(r"\d+ s: ", line) for line in progress), ran.stderr
    lines = ran.stdout.splitlines()
    assert (
        lines[0] == "resnet18, 128 samples a step, bf16, adam, 50,000 samples an epoch, 10 epochs,"
        " 3,910 steps"
    )
    assert lines[1].split() == [
        "hardware", "strategy", "step", "epoch", "target", "dollars", "memory", "efficiency"
    ]  # fmt: skip
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in ran.stdout
    content = json.loads((folder / "out" / "plans.json").read_text())
    assert content["asked"]["batch"] == 128
    dollars = [plan["dollars"]["value"] for plan in content["plans"]]
    assert dollars == sorted(dollars)
    assert any(plan["device"] == "T4" for plan in content["plans"])
    for plan in content["plans"]:
        for name in ("seconds_per_step", "seconds_per_epoch", "seconds", "dollars", "memory"):
            assert plan[name]["low"] < plan[name]["value"] < plan[name]["high"], name
        assert plan["efficiency"]["low"] <= plan["efficiency"]["value"] <= 1.05
    assert content["fit"]["fits"] is True
    assert "memory fit of the whole model on each device" in ran.stdout
    start = lines.index("the first plan starts with") + 1
    assert lines[start] == content["plans"][0]["command"]
    assert lines[start].startswith("slipstream run -n")


@pytest.mark.slow("forecast from the command line")
def test_sequences_on_hosts_of_ones_own_as_json(forecast: Forecast) -> None:
    ran = forecast(
        "gpt2", "--tokens", "128", "--batch", "64", "--own", "4xA100", "--max-hosts", "2",
        "--network", "100g", "--codec", "int8", "--total-tokens", "0.3B", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    content = json.loads(ran.stdout)
    seconds = [plan["seconds_per_step"]["value"] for plan in content["plans"]]
    assert seconds == sorted(seconds)
    assert {plan["devices"] for plan in content["plans"]} == {4, 8}
    assert content["steps"] == -(-300_000_000 // (64 * 128))
    assert content["plans"][0]["seconds"]["value"] == pytest.approx(content["steps"] * seconds[0])
    assert {plan["precision"] for plan in content["plans"]} == {"bf16"}
    assert content["plans"][0]["strategy"]["codec"] == "int8"


def test_a_function_in_a_file(forecast: Forecast) -> None:
    # Options may come before the model.
    ran = forecast("--shape", "3,32,32", "--batch", "64", "--own", "2xV100", "my_models.py:make")
    assert ran.code == 0, ran.stderr
    assert "2 V100-SXM2-16GB" in ran.stdout
    assert "dollars" not in ran.stdout


def test_an_onnx_file(forecast: Forecast, folder: Path) -> None:
    pytest.importorskip("onnx")
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    weight = numpy_helper.from_array(np.zeros((64, 32), np.float32), "weight")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weight"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])],
        [weight],
    )
    save(helper.make_model(graph), folder / "small.onnx")
    ran = forecast("small.onnx", "--batch", "64", "--own", "1xL4")
    assert ran.code == 0, ran.stderr
    assert "1 L4" in ran.stdout


def test_where_nothing_fits_it_says_what_is_needed(forecast: Forecast) -> None:
    ran = forecast("my_models.py:large", "--shape", "32768", "--batch", "1", "--own", "1xT4")
    assert ran.code == 1, ran.stderr
    assert "no allowed plan fits" in ran.stdout
    said = " ".join(ran.stdout.split())
    assert "GiB and has 16" in said


def test_what_was_measured_on_one_device_is_taken(forecast: Forecast) -> None:
    ran = forecast(
        "resnet18", "--batch", "64", "--own", "1xT4", "--alone", "100@64", "--input-rate", "110",
        "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["plans"][0]["seconds_per_step"]["value"] == pytest.approx(0.64, rel=1e-3)
    assert said["plans"][0]["step"]["input"] == 0
    assert said["asked"]["alone"] == [100.0, 64]


@pytest.mark.slow("forecast from the command line")
def test_a_model_that_does_not_fit_says_the_cheapest_change(forecast: Forecast) -> None:
    ran = forecast(
        "config.json", "--tokens", "1024", "--batch", "16", "--own", "8xT4", "--precision", "fp16"
    )
    assert ran.code == 0, ran.stderr
    said = " ".join(ran.stdout.split())
    assert "it does not fit. The cheapest change that makes it fit: ZeRO" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet18"], "Missing option '--batch'"),
        (["resnet18", "--batch", "0"], "--batch"),
        (["resnet18", "--batch", "8", "--precision", "fp8"], "'fp8' is not one of"),
    ],
)
def test_a_wrong_option_exits_with_2(arguments: list[str], words: str) -> None:
    ran = in_process("forecast", *arguments)
    assert ran.code == 2
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--deadline", "soon"], "the deadline is 'soon'; allowed: a number with a unit"),
        (["--search-time", "long"], "the search time is 'long'; allowed: a number"),
        (["--total-tokens", "many"], "numbers such as 1.5T, 15e12"),
        (["--total-tokens", "1.5Q"], "numbers such as 1.5T, 15e12"),
        (["--budget", "much"], "dollars such as 500"),
        (["--own", "1xT4", "--alone", "410"], "such as 410@64"),
        (["--shape", "big"], "sizes such as 3,224,224"),
    ],
)
def test_wrong_usage_says_what_is_allowed(arguments: list[str], words: str) -> None:
    assert words in usage_error("forecast", "resnet18", "--batch", "8", *arguments)


def test_an_architecture_that_is_not_known_is_wrong_usage() -> None:
    pytest.importorskip("torch")
    said = usage_error("forecast", "no-such-net", "--batch", "8", "--own", "1xT4")
    assert "no architecture is named 'no-such-net'" in said


def test_wrong_usage_is_one_line_of_the_program_and_exits_with_2() -> None:
    ran = program("resnet18", "--batch", "8", "--gpus", "A1000")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("slipstream: no device is called 'A1000'")
    assert len(ran.stderr.splitlines()) == 1


def test_help_has_examples_and_the_sub_command() -> None:
    for arguments in ((), ("--help",)):
        ran = in_process("forecast", *arguments)
        text = ran.stdout + ran.stderr
        assert "slipstream forecast resnet50 --batch 256" in text
        assert "validate" in text
    assert "--leave" in in_process("forecast", "validate", "--help").stdout


@pytest.mark.slow("forecast from the command line")
def test_a_terminal_sees_progress(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "my_models.py:make", "--shape", "3,32,32", "--batch", "8", "--own", "1xT4"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
    os.close(ours)
    assert process.returncode == 0
    assert b"tracing my_models.py:make" in seen
