"""Earlier runs correct the forecasts of their kind, and no others."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic")

from run_kinds import KIND, SETUP

from slipstream.errors import ConfigError
from slipstream.forecast.observed.correction import Correction, PriorWidths, correction, width_of
from slipstream.forecast.observed.file import RunObservation, read_observations
from slipstream.forecast.observed.kind import RunKind
from slipstream.forecast.search import intervals

WIDTHS = intervals.load().widths("language")


def observed(ratio: float, **changes: Any) -> RunObservation:
    """Return a run of KIND that took `ratio` times its forecast."""
    given: dict[str, Any] = {
        "version": 1, "run": "train-1", "ended_at": 1.8e9, "model": "gpt2", "hardware": "2 x hosts",
        "kind": KIND, "setup": SETUP, "forecast_seconds": 0.2, "measured_seconds": 0.2 * ratio,
        "source": "progress",
    }  # fmt: skip
    return RunObservation(**{**given, **changes})


def corrected(*observations: RunObservation, setup: Any = SETUP) -> Correction:
    return correction(observations, KIND, setup, WIDTHS)


def test_without_observations_nothing_changes() -> None:
    assert corrected() == Correction()
    assert Correction().seconds(2.0, 1.5) == 1.5


@pytest.mark.parametrize("group", ["", "encoder", "image", "language", "tables"])
@pytest.mark.parametrize("ratio", [1 / 1.5, 0.9, 1.0, 1.1, 1.5])
def test_one_run_takes_most_of_an_error_away_and_two_almost_all(group: str, ratio: float) -> None:
    widths = intervals.load().widths(group)
    for count, left in ((1, 0.055), (2, 0.03), (5, 0.012)):
        found = correction([observed(ratio)] * count, KIND, SETUP, widths)
        assert found.factor == pytest.approx(ratio, rel=left)
        assert found.observations == count
        assert min(1.0, ratio) <= found.factor <= max(1.0, ratio)


def test_the_interval_narrows_with_each_run() -> None:
    narrowings = [corrected(*[observed(1.2)] * count).narrowing for count in (1, 2, 4)]
    assert 0.5 > narrowings[0] > narrowings[1] > narrowings[2] > 0.2
    found = corrected(observed(1.2))
    low, value, high = (found.seconds(0.2, bound) for bound in (0.17, 0.2, 0.25))
    assert 0.2 * found.factor == pytest.approx(value)
    assert 0.17 / 0.2 < low / value < 1.0 < high / value < 0.25 / 0.2


def test_another_setup_of_the_kind_is_corrected_less() -> None:
    run = observed(1.5)
    other = corrected(run, setup=replace(SETUP, batch=512))
    assert 1.1 < other.factor < corrected(run).factor
    assert 1.0 > other.narrowing > corrected(run).narrowing
    assert other.observations == 1


@pytest.mark.parametrize("name", [field.name for field in fields(RunKind)])
def test_a_run_of_another_kind_changes_nothing(name: str) -> None:
    value = getattr(KIND, name)
    other = replace(KIND, **{name: value + "x" if isinstance(value, str) else value + 1})
    outdated = int(name == "tables")
    assert corrected(observed(1.5, kind=other)) == Correction(outdated=outdated)
    both = corrected(observed(1.5, kind=other), observed(1.2))
    assert both == replace(corrected(observed(1.2)), outdated=outdated)


def test_one_absurd_run_among_others_hardly_counts() -> None:
    usual = [observed(ratio) for ratio in (1.18, 1.2, 1.22)]
    assert corrected(*usual, observed(30.0)).factor == pytest.approx(1.2, rel=0.03)
    assert corrected(observed(30.0)).factor < 1.2


def test_the_prior_is_as_wide_as_the_interval() -> None:
    # Eight in ten values of a normal distribution are within 1.2816 standard deviations.
    assert width_of(1 / 1.2, 1.2) == pytest.approx(0.1823 / 1.2816, rel=1e-3)
    assert isinstance(WIDTHS, PriorWidths)
    assert WIDTHS.kind > WIDTHS.setup > 0.05


def _line(**changes: Any) -> str:
    return json.dumps({**asdict(observed(1.5)), **changes}) + "\n"


def test_a_file_is_read_and_the_newest_line_of_a_run_counts(tmp_path: Path) -> None:
    path = tmp_path / "observations.jsonl"
    assert read_observations(path) == []
    path.write_text(_line() + _line(run="train-2") + _line(measured_seconds=0.4) + '{"version')
    first, second = read_observations(path)
    assert (first.measured_seconds, first.kind, first.setup) == (0.4, KIND, SETUP)
    assert second.run == "train-2"


@pytest.mark.parametrize(
    "line",
    [
        "[]\n",
        "{}\n",
        "\n",
        _line(version=2),
        _line(measured_seconds=0),
        _line(measured_seconds="fast"),
        _line(source="guess"),
        _line(more=1),
        _line(kind={**asdict(KIND), "more": 1}),
        _line(kind={"device": "T4"}),
    ],
)
def test_a_wrong_line_is_named_with_a_way_out(tmp_path: Path, line: str) -> None:
    path = tmp_path / "observations.jsonl"
    path.write_text(_line() + line)
    with pytest.raises(ConfigError, match="no observation of version 1") as caught:
        read_observations(path)
    assert f"{path}:2" in str(caught.value)
    assert "--no-observations" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--no-observations"):
        read_observations(tmp_path)
