"""`slipstream forecast calibrate` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli import in_process

from slipstream.forecast.hardware import load
from slipstream.forecast.simulate import parameters

COMMAND = [str(Path(sys.executable).with_name("slipstream")), "forecast", "calibrate"]


def test_help_says_what_is_measured_and_how_it_is_used() -> None:
    ran = in_process("forecast", "calibrate", "--help")
    assert ran.code == 0
    for word in ("--output", "--comm", "--quick", "--hardware", "bench comm"):
        assert word in ran.stdout


def test_a_name_that_no_option_could_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    path = str(tmp_path / "node.toml")
    ran = in_process("forecast", "calibrate", "--name", "my node", "--output", path)
    assert ran.code == 2
    assert "the name is 'my node'; allowed: letters" in ran.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow("forecast beside a run")
@pytest.mark.alone
@pytest.mark.multiprocess
def test_what_it_writes_is_a_device_to_forecast_with(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "node.toml"
    ran = subprocess.run(
        [*COMMAND, "--quick", "--name", "node", "-o", str(path), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    content = json.loads(ran.stdout)
    hardware = load(path)
    device = hardware.device("node")
    assert device.tflops["float32"] == pytest.approx(
        content["device"][0]["tflops"]["float32"], rel=1e-3
    )
    assert device.memory_gib > 0.5
    assert hardware.link(device.device_link).gbyte_per_s > 0.01
    assert parameters.load(over=path).rates.vector == 1
