"""A table judged end to end: traced, simulated, scored."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli import app
from slipstream.errors import ConfigError
from slipstream.forecast.search import intervals
from slipstream.forecast.validate import display, folds
from slipstream.forecast.validate.fit import Fit
from slipstream.forecast.validate.predict import CasePredictor
from slipstream.forecast.validate.scaling import Singles
from slipstream.forecast.validate.score import ValidationReport, validate
from slipstream.forecast.validate.table import read

TABLE = Path(__file__).parents[3] / "benchmarks" / "forecast" / "measurements.csv"
MODELS = (
    "GPT h=1024 heads=16 L=12",
    "VGG16,",
    "ResNet-50 v1.5 FP32",
    "MPT-125m seq512 ",
    "BERT-Base pretrain (seq128) FP32",
)
UNKNOWN = "GreenNet CNN"

Thin = Callable[[Sequence[str]], Path]


@pytest.fixture(name="thin", scope="module")
def thin_fixture(tmp_path_factory: pytest.TempPathFactory) -> Thin:
    """Write the rows of some models to a separate table."""

    def write(models: Sequence[str]) -> Path:
        path = tmp_path_factory.mktemp("tables") / "thin.csv"
        with TABLE.open(newline="") as source, path.open("w", newline="") as target:
            rows = csv.reader(source)
            out = csv.writer(target)
            out.writerow(next(rows))
            out.writerows(row for row in rows if f"{row[1]},".startswith(tuple(models)))
        return path

    return write


@pytest.fixture(name="report", scope="module")
def report_fixture(thin: Thin) -> ValidationReport:
    """Return a report on some models, each row judged by parameters without its source."""
    return validate(thin([*MODELS, UNKNOWN]), folds.load())


@pytest.mark.slow("forecast fitted to measurements")
def test_what_cannot_be_read_counts_and_has_a_reason(report: ValidationReport) -> None:
    assert [row.model for row in report.unread] == [UNKNOWN]
    assert report.sources()["PAISoar"].rows == 1
    assert report.sources()["PAISoar"].read == 0
    assert report.unread[0].reason


@pytest.mark.slow("forecast fitted to measurements")
def test_errors_without_the_source_are_of_the_kind_that_the_documents_say(
    report: ValidationReport,
) -> None:
    sources = report.sources()
    assert sources["vTrain ground truth single-node"].read > 100
    for name in ("vTrain ground truth single-node", "DLPerf v1.0 (2020-10)"):
        assert sources[name].mape < 0.3, name
        assert sources[name].mape <= sources[name].p90


@pytest.mark.slow("forecast fitted to measurements")
def test_a_model_that_was_left_out_is_forecast_within_a_tenth(thin: Thin) -> None:
    report = validate(thin(MODELS[:1]), folds.load(), leave="model")
    assert report.sources()["vTrain ground truth single-node"].mape < 0.10


@pytest.mark.slow("forecast fitted to measurements")
def test_what_was_fitted_on_is_forecast_better_than_what_was_left_out(thin: Thin) -> None:
    table = thin(MODELS[:2])
    known = folds.load()
    seen, unseen = (validate(table, known, leave).judged for leave in ("none", "source"))
    assert sum(e.error for e in seen) < sum(e.error for e in unseen)


@pytest.mark.slow("forecast fitted to measurements")
def test_the_mean_is_of_forecast_less_measured_over_measured(report: ValidationReport) -> None:
    name = "DLPerf v1.0 (2020-10)"
    rows = [each for each in report.judged if each.case.source == name]
    errors = [abs(each.forecast - each.case.measured) / each.case.measured for each in rows]
    assert report.sources()[name].mape == pytest.approx(sum(errors) / len(errors))


@pytest.mark.slow("forecast fitted to measurements")
def test_efficiency_is_that_of_the_published_single_device(report: ValidationReport) -> None:
    found = report.efficiencies()
    assert found
    for judged, ours, theirs in found:
        assert 0 < ours < 1.2
        assert judged.case.devices > 1
        assert 0 < theirs < 1.5


def test_a_published_device_sets_the_pace(thin: Thin) -> None:
    cases, _ = read(thin(["ResNet-50 v1.5 FP32"]))
    folds_all = folds.load()
    predictor, parameters = CasePredictor(folds_all.guess), folds_all.parameters()[""]
    several = next(case for case in cases if case.devices == 8 and case.source.startswith("DLPerf"))
    singles = Singles(cases)
    one = singles.seconds(several)
    assert one is not None
    found = singles.efficiency(several, predictor, parameters)
    assert found is not None
    assert found.measured == pytest.approx(one / several.measured)
    # If the published single device is twice as slow, compute is twice as slow and communication is
    # not.
    slow = Singles([replace(each, measured=2 * each.measured) for each in cases])
    assert slow.seconds(several) == pytest.approx(2 * one)
    once, twice = (each.step(several, predictor, parameters) for each in (singles, slow))
    assert once is not None
    assert twice is not None
    assert once < twice <= 2 * once
    assert Singles([]).efficiency(several, predictor, parameters) is None
    assert singles.seconds(replace(several, devices=1)) is None


@pytest.mark.slow("forecast fitted to measurements")
def test_most_rows_lie_in_their_intervals(report: ValidationReport) -> None:
    assert 0.5 < display.coverage(report, intervals.load()) <= 1


def test_the_command_prints_json_for_programs(thin: Thin) -> None:
    result = CliRunner().invoke(
        app, ["forecast", "validate", str(thin(["VGG16,", UNKNOWN])), "--json"]
    )
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert set(content["sources"]["PAISoar"]) == {"rows", "read", "mape", "median", "p90"}
    assert content["sources"]["PAISoar"] == {
        "rows": 1, "read": 0, "mape": None, "median": None, "p90": None,
    }  # fmt: skip
    assert content["memory"] == {}
    assert 1 <= len(content["worst"]) <= 10
    errors = [row["error"] for row in content["worst"]]
    assert errors == sorted(errors, reverse=True)
    assert all(math.isfinite(error) for error in errors)


@pytest.mark.parametrize("key", sorted(display.KEYS))
def test_the_command_puts_rows_together(thin: Thin, key: str) -> None:
    table = str(thin(["VGG16,"]))
    result = CliRunner().invoke(app, ["forecast", "validate", table, "--by", key])
    assert result.exit_code == 0, result.output
    assert "MAPE" in result.stdout
    assert "Rows with the largest errors" in result.stdout


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("model,gpu\nVGG16,V100\n")
    result = CliRunner().invoke(app, ["forecast", "validate", str(table)])
    assert result.exit_code != 0


def test_folds_come_back_as_they_were_written(tmp_path: Path) -> None:
    known = folds.load()
    folds.save(known, tmp_path / "fit.json")
    assert folds.load(tmp_path / "fit.json") == known


def test_a_file_that_is_no_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fit.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"fit\.json cannot be read as fits"):
        folds.load(tmp_path / "fit.json")


def test_peaks_of_memory_have_a_table_of_their_own(thin: Thin) -> None:
    table = str(thin(["Wide&Deep vocab=6400000"]))
    result = CliRunner().invoke(app, ["forecast", "validate", table, "--json"])
    assert result.exit_code == 0, result.output
    (memory,) = json.loads(result.stdout)["memory"].values()
    assert set(memory) == {"rows", "read", "mape", "median", "p90"}
    assert memory["rows"] == memory["read"] == 2
    assert 0 < memory["mape"] <= memory["p90"] < 0.1
    result = CliRunner().invoke(app, ["forecast", "validate", table])
    assert "Peak memory" in result.stdout


@pytest.mark.slow("forecast fitted to measurements")
def test_a_fit_finds_the_parameters_that_made_the_measurements(thin: Thin) -> None:
    known = folds.load()
    predictor, guess = CasePredictor(known.guess), known.guess
    truth = replace(guess, rates=replace(guess.rates, memory=0.7, vector=0.65))
    cases = [
        replace(case, measured=predictor.forecast(case, truth))
        for case in read(thin(["ResNet-50 v1.5 FP32", "VGG16,"]))[0]
        if case.measures == "step"
    ]
    fit = Fit(cases, predictor, Singles(cases), guess)
    found = fit.space.parameters(fit.all(rounds=3).tolist())
    # Factors of runtimes and rates may compensate each other; their product explains the
    # measurement.
    errors = [predictor.forecast(case, found) / case.measured - 1 for case in cases]
    before = [predictor.forecast(case, guess) / case.measured - 1 for case in cases]
    assert max(map(abs, errors)) < 0.03 < max(map(abs, before))
