"""Scores of tables, folds of fits and the space of what is fitted, by hand."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic")

from slipstream.forecast.hardware import load
from slipstream.forecast.search import machines
from slipstream.forecast.simulate.compute import Runtime
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.validate import folds
from slipstream.forecast.validate.case import PublishedCase, Unread
from slipstream.forecast.validate.folds import Folds, fold_of, model_of
from slipstream.forecast.validate.memory import Footprint
from slipstream.forecast.validate.predict import CasePredictor, optimizer_of
from slipstream.forecast.validate.scaling import Singles
from slipstream.forecast.validate.score import Judged, ValidationReport, group_of
from slipstream.forecast.validate.space import Space
from slipstream.forecast.work.strategy import Optimizer, Strategy

CASE = PublishedCase(
    line=2, source="one", model="GPT", gpu="A100", framework="Megatron", unit="ms/iteration",
    address="", architecture="gpt2", sizes={}, inputs={"length": 8}, precision="fp16", fp8=False,
    real_data=False, device="A100-80GB", devices=8, per_host=8, network_gbit=None,
    strategy=Strategy(data=8), sharded="none", runtime="megatron", step_samples=8, measured=2.0,
    measures="step", channels_first=False, gradient_bytes=4, raced=False, input_rate=None,
    memory_mb=None, group="g", assumed=(),
)  # fmt: skip
GUESS = Parameters(runtimes={name: Runtime(name=name) for name in ("usual", "mxnet", "xla")})


def _report(*forecasts: float, **columns: Any) -> ValidationReport:
    judged = tuple(Judged(replace(CASE, **columns), each, None) for each in forecasts)
    return ValidationReport(judged=judged, unread=(), leave="source")


def test_a_score_is_of_errors_over_what_was_measured():
    # The forecasts are a half too high, a quarter too low and exact; 2 seconds were measured.
    (score,) = _report(3.0, 1.5, 2.0).by(lambda case: case.source).values()
    assert (score.rows, score.read) == (3, 3)
    assert score.mape == pytest.approx((0.5 + 0.25 + 0) / 3)
    assert score.median == 0.25
    assert score.bias == pytest.approx((1.5 + 0.75 + 1) / 3 - 1)
    # The 90th percentile lies between the second and the third of three errors.
    assert score.p90 == pytest.approx(0.25 + 0.8 * 0.25)


def test_rows_that_were_not_read_count_and_sources_are_sorted():
    unread = tuple(
        Unread(line=line, source=source, model="", reason="")
        for line, source in ((4, "zero"), (5, "one"), (6, "one"))
    )
    found = replace(_report(3.0), unread=unread).sources()
    assert list(found) == ["one", "zero"]
    assert (found["one"].rows, found["one"].read, found["one"].mape) == (3, 1, 0.5)
    assert (found["zero"].rows, found["zero"].read) == (1, 0)
    nothing = found["zero"]
    assert all(math.isnan(each) for each in nothing.shares)


def test_peaks_are_scored_by_source():
    cases = [replace(CASE, source=source, memory_mb=100.0) for source in ("two", "one", "one")]
    peaks = tuple(Footprint(case, each) for case, each in zip(cases, (90, 150, 100), strict=True))
    found = replace(_report(), footprints=peaks).memory()
    assert list(found) == ["one", "two"]
    assert (found["one"].rows, found["one"].mape) == (2, 0.25)
    assert found["two"].bias == pytest.approx(-0.1)


def test_the_worst_rows_come_first_and_are_ten():
    report = _report(*(2.0 + place / 10 for place in range(12)))
    assert [each.forecast for each in report.worst()] == [2 + p / 10 for p in range(11, 1, -1)]
    assert [each.error for each in report.worst(1)] == [pytest.approx(0.55)]


@pytest.mark.parametrize(
    ("forecasts", "columns", "hits"),
    [
        # The best measured of four strategies is the third in the forecast, and then the fourth.
        ((3.0, 1.0, 2.0, 4.0), {}, (1, 1)),
        ((4.0, 1.0, 2.0, 3.0), {}, (0, 1)),
        ((1.0, 2.0, 3.0), {}, (0, 0)),
        ((3.0, 1.0, 2.0, 4.0), {"runtime": "fsdp"}, (0, 0)),
        ((3.0, 1.0, 2.0, 4.0), {"measures": "speedup"}, (0, 0)),
    ],
)
def test_the_best_strategy_is_among_the_first_three(
    forecasts: tuple[float, ...], columns: dict[str, Any], hits: tuple[int, int]
):
    report = _report(*forecasts, **columns)
    first, *rest = report.judged
    best = replace(first, case=replace(first.case, measured=1.0))
    assert replace(report, judged=(best, *rest)).ranks() == hits


@pytest.mark.parametrize(
    ("names", "group", "optimizer"),
    [
        (("resnet50", "vgg16", "alexnet", "googlenet", "face-y1"), "image", Optimizer.MOMENTUM),
        (("efficientnet-b0", "vit-base-16", "ssd300"), "image", Optimizer.ADAM),
        (("gpt2", "mpt-7b", "llama3-8b"), "language", Optimizer.ADAM),
        (("bert-base", "transformer-big"), "encoder", Optimizer.ADAM),
        (("dlrm-small", "wide-deep", "ncf"), "tables", Optimizer.ADAM),
    ],
)
def test_kinds_of_models(names: tuple[str, ...], group: str, optimizer: Optimizer):
    for name in names:
        case = replace(CASE, architecture=name)
        assert (group_of(case), optimizer_of(case)) == (group, optimizer)


@pytest.mark.parametrize(
    ("device", "stated", "gbit"),
    [
        ("V100-SXM2-16GB", None, 400), ("A100-80GB", None, 1600), ("H100", None, 3200),
        ("P100", None, 100), ("A100-80GB", 25.0, 25),
    ],
)  # fmt: skip
def test_hosts_whose_network_is_not_stated_have_what_such_clusters_had(
    device: str, stated: float | None, gbit: float
):
    found = CasePredictor(GUESS).cluster(replace(CASE, device=device, network_gbit=stated))
    assert found.between == machines.ethernet(gbit)
    assert found.device == load().device(device)
    assert found.per_host == 8


def test_what_is_left_out_is_a_source_or_a_model_of_it():
    case = replace(CASE, sizes={"layers": 2.0, "hidden": 8.0, "positions": 16.0})
    assert model_of(case) == "gpt2 hidden=8 layers=2"
    assert model_of(CASE) == "gpt2"
    assert [fold_of(case, leave) for leave in ("none", "source", "model")] == [
        "", "one", "one: gpt2 hidden=8 layers=2",
    ]  # fmt: skip


def test_one_device_stands_for_rows_that_are_the_same_otherwise():
    one = replace(CASE, devices=1, step_samples=4, measured=2.0, strategy=Strategy())
    singles = Singles([one, replace(one, measures="speedup", source="two")])
    assert singles.seconds(replace(CASE, step_samples=32)) == pytest.approx(32 / 8 / 2)
    others: list[dict[str, Any]] = [
        {"devices": 1}, {"measures": "to-target"}, {"source": "two"}, {"gpu": "V100"},
        {"framework": "FSDP"}, {"precision": "fp32"}, {"inputs": {"length": 9}},
        {"architecture": "bert-base"}, {"sharded": "head"},
        {"strategy": Strategy(data=8, micro_batch=2)},
    ]  # fmt: skip
    for changes in others:
        assert singles.seconds(replace(CASE, **changes)) is None, changes


def test_the_origin_of_the_space_is_the_guess():
    space = Space(GUESS, ["mxnet"])
    assert space.parameters([0.0] * len(space.knobs)) == GUESS
    tables = [knob.table for knob in space.knobs]
    assert tables.count("rates") == 11
    assert tables.count("wire") == 4
    assert tables.count("usual") == tables.count("mxnet") == 8
    assert "xla" not in tables
    assert all(0.1 <= knob.width <= 1 for knob in space.knobs)
    with pytest.raises(ValueError, match="argument"):
        space.parameters([0.0])


def test_knobs_are_logarithms_of_factors_and_shares_end_at_1():
    space = Space(GUESS, ["mxnet"])

    def at(table: str, name: str, factor: float) -> Parameters:
        return space.parameters(
            [
                math.log(factor) if (knob.table, knob.name) == (table, name) else 0.0
                for knob in space.knobs
            ]
        )

    assert at("rates", "half_sum", 3.0).rates.half_sum == pytest.approx(450)
    assert at("wire", "ramp_us", 0.5).wire.ramp_us == pytest.approx(15)
    for table, names in (
        ("rates", ("matrix", "tf32", "vector", "matrix_windows", "vector_windows", "memory")),
        ("wire", ("inside", "between")),
    ):
        for name in names:
            assert getattr(getattr(at(table, name, 9.0), table), name) == 1
    # Knobs of the usual runtime change all runtimes; those of another runtime change only that one.
    usual, own = at("usual", "memory", 2.0), at("mxnet", "memory", 2.0)
    assert [usual.runtimes[name].memory for name in ("usual", "mxnet", "xla")] == [2.0] * 3
    assert [own.runtimes[name].memory for name in ("usual", "mxnet", "xla")] == [1.0, 2.0, 1.0]
    assert at("usual", "overlap", 2.0).runtimes["xla"].overlap == 1


def test_each_fold_has_the_parameters_of_its_point(tmp_path: Path):
    count = len(Space(GUESS, []).knobs)
    point = [0.12345] + [0.0] * (count - 1)
    known = Folds(guess=GUESS, runtimes=[], all=[0.0] * count, without={"one": point})
    assert set(known.parameters()) == {"", "one"}
    assert known.parameters()[""] == GUESS
    found = known.parameters()["one"].rates.matrix
    assert found == pytest.approx(GUESS.rates.matrix * math.exp(0.12345))
    # Numbers have four digits, and each fold has a line.
    folds.save(known, tmp_path / "fit.json")
    assert folds.load(tmp_path / "fit.json").without["one"][0] == 0.1235  # 0.12345 is rounded
    assert len((tmp_path / "fit.json").read_text().splitlines()) == len(fields(Folds)) + 4
