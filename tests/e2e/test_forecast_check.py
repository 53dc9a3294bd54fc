"""`slipstream forecast check` as a user calls it: steps of this machine, forecast and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli import in_process, usage_error

from slipstream.forecast.calibrate import file
from slipstream.forecast.calibrate.measured import CalibratedDevice, Calibration

COMMAND = [str(Path(sys.executable).with_name("slipstream")), "forecast", "check"]
MODELS = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                         nn.Linear(7200, 10))

def large():
    return nn.Linear(32768, 32768)

def broken():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            if type(x) is torch.Tensor:
                raise RuntimeError("no kernel for this device")
            return self.linear(x)

    return Broken()
"""

GPT = {
    "model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 64,
    "n_positions": 16,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with models and a description of this machine, in which commands run."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    device = CalibratedDevice(
        kind="cpu", title="a processor", memory_gib=4.0, processors=2, cache_mib=32.0,
        tflops={"float32": 0.1}, half_sum=0.0, vector_half_sum=0.0, windows={"float32": 0.5},
        winograd=1.0, depthwise=0.1, memory_gb_per_s=20.0, gather=1.0,
        batch_norms={"float32": 0.5}, forward_us=30.0, backward_us=30.0, update_us=8.0,
    )  # fmt: skip
    file.write(Calibration(name="here", day="2026-11-26", device=device), tmp_path / "here.toml")
    return tmp_path


ARGUMENTS = (
    "models.py:make", "--shape", "3,32,32", "--batch", "4", "--time", "0.2", "--json",
    "--hardware", "here.toml",
)  # fmt: skip


def check_step(stdout: str) -> None:
    """Check what a step of `make` was forecast and measured to take."""
    found = json.loads(stdout)
    assert found["steps"] >= 5
    low, high = found["spread"]
    seconds = found["seconds"]
    assert 0 < low <= seconds["measured"] <= high
    assert 0 < seconds["low"] <= seconds["value"] <= seconds["high"]
    assert found["memory"]["measured"] is None  # of a GPU only
    rate, samples = found["alone"].split("@")
    assert float(rate) == pytest.approx(4 / seconds["measured"], rel=1e-3)
    assert samples == "4"


@pytest.mark.slow("forecast beside a run")
def test_a_step_is_forecast_and_run(folder: Path) -> None:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    ran = subprocess.run(
        [*COMMAND, *ARGUMENTS],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    check_step(ran.stdout)


def test_a_step_in_16_bits_is_forecast_and_run(folder: Path) -> None:
    del folder
    ran = in_process("forecast", "check", *ARGUMENTS, "--precision", "bf16")
    assert ran.code == 0, ran.stderr
    check_step(ran.stdout)


def test_a_language_model_is_trained_in_16_bits_as_a_whole(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(GPT))
    ran = in_process(
        "forecast", "check", "config.json", "--tokens", "8", "--batch", "1", "--time", "0.1",
        "--precision", "bf16", "--hardware", "here.toml",
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    assert "step" in ran.stdout
    assert "--alone" in ran.stdout


def test_what_the_device_is_has_to_be_said() -> None:
    said = usage_error("forecast", "check", "resnet18", "--batch", "1")
    assert "the device is unknown: set device, such as H100, or hardware" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet18", "--batch", "1", "--device", "abacus"), "abacus"),
        (("models.py:large", "--shape", "32768", "--batch", "1"), "be trained on one here: "),
        (("models.py:broken", "--shape", "4", "--batch", "1"), "no kernel for this device"),
    ],
)
def test_what_cannot_be_run_says_why(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    del folder
    ran = in_process("forecast", "check", *arguments, "--time", "0.1", "--hardware", "here.toml")
    assert ran.code != 0
    assert message in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr
