"""The tour's parts: what is compared, how it is shown, and what goes wrong."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

pytest.importorskip("torch")
pytest.importorskip("uvloop")

from slipstream.errors import SlipstreamError, UsageError
from slipstream.forecast import Interval
from slipstream.tour import example
from slipstream.tour.display import Terminal
from slipstream.tour.guide import TourSpec, tour
from slipstream.tour.prediction import Prediction
from slipstream.tour.results import Forecasts
from slipstream.tour.serving import Answered, served
from slipstream.tour.training import Trained, train


def prediction(step: float) -> Prediction:
    def near(value: float) -> Interval:
        return Interval(value, 0.9 * value, 1.1 * value)

    return Prediction(
        step=near(step),
        rate=near(128 / step),
        efficiency=Interval(0.96, 0.84, 1.0),
        epoch=near(100 * step),
        limit="compute",
    )


FORECASTS = Forecasts(
    ranks=2, epochs=10, alone=2700.0, kernels=prediction(0.020), steps=prediction(0.024)
)
TRAINED = Trained(
    checkpoint=Path("checkpoint.pt"),
    accuracy=0.9271,
    rate=128 / 0.025,
    step=0.025,
    seconds=25.0,
    whole_seconds=30.0,
)


def shown(colors: str | None = None) -> tuple[Terminal, io.StringIO]:
    stream = io.StringIO()
    console = Console(
        file=stream, width=100, force_terminal=colors is not None, color_system=colors
    )
    return Terminal(console, Console(file=io.StringIO())), stream


def test_what_was_forecast_is_compared_with_what_came() -> None:
    compared = {each.name: each for each in FORECASTS.beside(TRAINED)}
    assert compared["a step"].measured == 0.025
    assert compared["a step"].kernels.value == 0.020
    assert compared["images/s"].steps.value == pytest.approx(128 / 0.024)
    assert compared["efficiency"].measured == pytest.approx(128 / 0.025 / 5400)
    assert compared["all steps"].measured == 25.0
    assert compared["all steps"].kernels.high == pytest.approx(1.1 * 10 * 100 * 0.020)


def test_the_table_says_how_far_off_each_forecast_is() -> None:
    terminal, stream = shown()
    terminal.trained(FORECASTS, TRAINED)
    lines = {
        line.split("│")[1].strip(): line for line in stream.getvalue().splitlines() if "│" in line
    }
    assert "-20.0%" in lines["a step"]
    assert "-4.0%" in lines["a step"]
    assert "25.0 ms" in lines["a step"]
    assert "+1 pt" in lines["efficiency"]
    assert "92.71% of the test images" in stream.getvalue()


@pytest.mark.parametrize(("colors", "sign"), [(None, "@"), ("truecolor", "▀")])
def test_a_picture_is_drawn_with_and_without_colours(colors: str | None, sign: str) -> None:
    pixels = np.zeros((28, 28), np.uint8)
    pixels[:2] = 255
    answered = Answered(
        pixels=pixels,
        label="bag",
        likeliest=(("bag", 0.9), ("coat", 0.06), ("shirt", 0.04)),
        asked=500,
        right=466,
        middle_ms=0.64,
    )
    terminal, stream = shown(colors)
    terminal.answered(answered)
    text = stream.getvalue()
    assert text.count(sign) == (28 if colors is None else 28 * 14)
    assert ("\x1b[38;2;255;255;255" in text) == (colors is not None)
    assert "466 of 500" in text


def test_more_ranks_than_pictures_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "tour"
    spec = TourSpec(output=output, ranks=65, epochs=None, quick=True, stream=sys.stdout)
    with pytest.raises(UsageError, match=r"ranks is 65.*allowed: up to 64"):
        tour(spec, shown()[0])
    assert not output.exists()


@pytest.mark.slow("from training to answers")
@pytest.mark.multiprocess
def test_a_training_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match="the training ended with exit code 1"):
        train(tmp_path, ranks=1, epochs=1, samples=10, stream=None)


@pytest.mark.multiprocess
def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(SlipstreamError, match=r"did not start: .*none\.slip"),
        served(tmp_path / "none.slip"),
    ):
        pass


def test_a_missing_package_is_named_with_the_command_that_brings_it() -> None:
    script = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "uvloop" else found(name, *rest)
from slipstream.tour import example
example.check_packages()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (
        "the tour needs uvloop, not installed here; pip install 'slipstream[serve]'" in ran.stderr
    )


def test_the_demo_has_as_many_classes_and_pictures_as_is_said() -> None:
    images, labels = example.module("data").load("t10k")
    assert images.shape[1:] == example.SHAPE
    assert labels.unique().tolist() == list(range(len(example.CLASSES)))
