"""`slipstream tour`: one model from its forecast to an answer over REST."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli import in_process

pytest.importorskip("torch")

from slipstream import infer

SLIPSTREAM = str(Path(sys.executable).with_name("slipstream"))


def test_help_says_what_it_does() -> None:
    ran = in_process("tour", "--help")
    assert ran.code == 0
    for word in ("--output", "--ranks", "--quick", "--json", "over REST"):
        assert word in ran.stdout


@pytest.mark.slow("from training to answers")
@pytest.mark.alone
@pytest.mark.multiprocess
def test_one_command_forecasts_trains_compiles_serves_and_asks(tmp_path: Path) -> None:
    ran = subprocess.run(
        [SLIPSTREAM, "tour", "--quick", "--epochs", "2", "--json"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    for step in ("1/4  Forecast", "2/4  Train", "3/4  Compile", "4/4  Serve", "The tour took"):
        assert step in ran.stderr

    for each in found["forecast"]:
        for forecast in (each["kernels"], each["steps"]):
            assert 0 < forecast["low"] <= forecast["value"] <= forecast["high"]
        # Tests share their machine, so this says only that both are of one quantity.
        assert 0.2 < each["steps"]["value"] / each["measured"] < 5, each
    steps = next(each["measured"] for each in found["forecast"] if each["name"] == "a step")
    assert steps == pytest.approx(2 * 64 / found["trained"]["rate"])

    assert (found["ranks"], found["epochs"]) == (2, 2)
    assert found["trained"]["accuracy"] > 0.6  # chance is 0.1
    served = found["served"]
    assert served["asked"] == 500
    assert served["right"] / served["asked"] == pytest.approx(found["trained"]["accuracy"], abs=0.1)
    assert sum(probability for _, probability in served["likeliest"]) <= 1.001

    with infer.load(tmp_path / "tour-output" / "fashion.slip") as model:
        assert np.asarray(model(np.zeros((1, 28, 28, 1), np.uint8))).shape == (1, 10)
