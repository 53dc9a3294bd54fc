"""The pages of a forecast and of a judged table: the rows behind each chart, and the HTML."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from run_kinds import KIND, SETUP

from slipstream.forecast.hardware import load
from slipstream.forecast.memory import PeakMemory
from slipstream.forecast.observed.correction import Correction
from slipstream.forecast.report import (
    charts,
    colours,
    forecast_page,
    judged,
    rows,
    spans,
    validation_page,
)
from slipstream.forecast.search import intervals, machines
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.search.plan import Interval, Loss, Plan
from slipstream.forecast.search.search import Result
from slipstream.forecast.simulate.pipeline import StageTimes, schedule
from slipstream.forecast.simulate.resources import Resources, ResourceSpan
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.validate.scaling import Efficiency
from slipstream.forecast.validate.score import Judged, ValidationReport
from slipstream.forecast.validate.table import read
from slipstream.forecast.work.strategy import Strategy

TABLE = Path(__file__).parents[3] / "benchmarks" / "forecast" / "measurements.csv"
HARDWARE = load()
PEAK = PeakMemory(
    reserved=30 << 30, allocated=29 << 30, parameters=4 << 30, gradients=4 << 30, states=8 << 30,
    activations=12 << 30, workspace=1 << 29, communication=1 << 29, at="block.3 mm",
)  # fmt: skip
# Hosts, seconds of a step and efficiency of plans on A100 and V100.
SIZES = [(1, 0.4, 1.0), (2, 0.21, 0.95), (4, 0.15, 0.66), (8, 0.16, 0.31)]


def _step(seconds: float, queues: Resources | None = None) -> SimulatedStep:
    spent = {"compute": 0.7, "tensor": 0.05, "bubble": 0.1, "exchange": 0.08, "optimizer": 0.04}
    return SimulatedStep(
        seconds=seconds, moved=0.2 * seconds, host=0.03 * seconds, input=0.0,
        spans=tuple(queues.spans)
        if queues
        else (ResourceSpan("device 0", "forward 0", 0, seconds),),
        **{name: share * seconds for name, share in spent.items()},
    )  # fmt: skip


def _plan(machine: HostType, hosts: int, seconds: float, efficiency: float, **more: Any) -> Plan:
    given: dict[str, Any] = {
        "step": _step(seconds), "strategy": Strategy(data=8 * hosts, micro_batch=4, codec="fp16"),
        "seconds_per_epoch": None, "seconds": None, "dollars": None,
    }  # fmt: skip
    return Plan(
        kind=KIND, setup=SETUP,
        machine=machine, hosts=hosts, peak=PEAK, limit="network",
        memory=Interval(PEAK.reserved, 0.9 * PEAK.reserved, 1.1 * PEAK.reserved),
        efficiency=Interval(efficiency, 0.8 * efficiency, min(1.0, 1.1 * efficiency)),
        mfu=Interval(0.41, 0.36, 0.45),
        seconds_per_step=Interval(seconds, 0.8 * seconds, 1.3 * seconds), **{**given, **more},
    )  # fmt: skip


@pytest.fixture(name="plans", scope="module")
def plans_fixture() -> list[Plan]:
    """Return a result with two kinds of machines in four sizes."""
    link = machines.network(HARDWARE, "100g")
    kinds = [
        machines.own(HARDWARE, name, 8, link, price)
        for name, price in (("A100", 20.0), ("V100", 5.0))
    ]
    return [
        _plan(machine, hosts, seconds * (1 + 2 * index), efficiency)
        for index, machine in enumerate(kinds)
        for hosts, seconds, efficiency in SIZES
    ]


def test_a_line_of_scaling_has_the_best_plan_of_each_size(plans: list[Plan]) -> None:
    worse = _plan(plans[0].machine, 2, 0.3, 0.5)
    found = rows.scaling([*plans, worse], rows.kinds(plans))
    assert len(found) == len(plans)
    for name in rows.kinds(plans):
        line = {row["devices"]: row["efficiency"] for row in found if row["kind"] == name}
        assert line == {8 * hosts: efficiency for hosts, _, efficiency in SIZES}


def test_only_the_wanted_lines_are_drawn(plans: list[Plan]) -> None:
    first = rows.kinds(plans)[:1]
    assert {row["kind"] for row in rows.scaling(plans, first)} == set(first)


def test_the_front_is_what_no_plan_beats(plans: list[Plan]) -> None:
    found = rows.costs(plans, rows.scale(plans))
    points = [(row["time_value"], row["cost_value"]) for row in found]
    for row, (time, cost) in zip(found, points, strict=True):
        beaten = any(t <= time and c <= cost and (t, c) != (time, cost) for t, c in points)
        assert row["front"] is not beaten
    assert 1 < sum(row["front"] for row in found) < len(found)


def test_cost_is_time_by_price_with_its_interval(plans: list[Plan]) -> None:
    of = rows.scale(plans)
    assert of.priced
    assert of.time == "minutes for 1,000 steps"
    row = rows.costs(plans, of)[1]
    assert row["time_value"] == pytest.approx(0.21 * 1000 / 60)
    assert row["cost_value"] == pytest.approx(0.21 * 1000 / 3600 * 2 * 20)
    assert row["cost_high"] / row["cost_value"] == pytest.approx(1.3)


def test_without_a_price_hours_of_devices_are_the_cost() -> None:
    own = machines.own(HARDWARE, "A100", 8)
    target = Interval(36000.0, 30000.0, 50000.0)
    plan = replace(_plan(own, 1, 0.4, 1.0), seconds=target)
    of = rows.scale([plan])
    assert (of.time, of.cost) == ("hours to the target", "device hours to the target")
    (row,) = rows.costs([plan], of)
    assert (row["time_value"], row["cost_value"]) == (10.0, 80.0)


def test_parts_add_up_to_the_step_and_uses_to_the_memory(plans: list[Plan]) -> None:
    for number, plan in enumerate(plans, 1):
        name = rows.label(number, plan)
        mine = [row for row in rows.parts(plans) if row["plan"] == name]
        assert sum(row["ms"] for row in mine) == pytest.approx(1e3 * plan.step.seconds)
        assert sum(row["share"] for row in mine) == pytest.approx(1)
        held = [row["gib"] for row in rows.memory(plans) if row["plan"] == name]
        assert sum(held) == pytest.approx(30)


def test_shares_of_a_step_are_drawn_from_nothing_to_all_of_it(plans: list[Plan]) -> None:
    spec = charts.parts(rows.parts(plans))
    assert spec["encoding"]["x"]["scale"]["domain"] == [0, 1]


def test_a_schedule_has_every_span_of_a_short_step(plans: list[Plan]) -> None:
    queues = Resources()
    schedule([StageTimes(1e-3, 2e-3, 1e-4)] * 4, 8, queues)
    plan = _plan(plans[0].machine, 1, 0.05, 1.0, step=_step(0.05, queues))
    found = spans.schedule(1, plan)
    drawn = {(row["queue"], row["what"], row["start"], row["end"]) for row in found}
    assert drawn == {
        (each.queue, each.name, round(each.start * 1e3, 4), round(each.end * 1e3, 4))
        for each in queues.spans
    }
    assert {row["kind"] for row in found} == {"forward", "backward"}


def test_of_a_long_schedule_no_time_is_lost_and_little_is_drawn(plans: list[Plan]) -> None:
    queues = Resources()
    schedule([StageTimes(1e-3, 2e-3)] * 24, 500, queues)
    plan = _plan(plans[0].machine, 1, 2.0, 1.0, step=_step(2.0, queues))
    found = spans.schedule(1, plan)
    names = list(dict.fromkeys(row["queue"] for row in found))
    assert names == [f"device {n}" for n in (*range(8), *range(16, 24))]
    for name in names:
        mine = [row for row in found if row["queue"] == name]
        assert len(mine) < 450
        assert all(one["end"] <= other["start"] + 1e-3 for one, other in pairwise(mine))
        busy = sum(each.end - each.start for each in queues.spans if each.queue == name)
        assert sum(row["end"] - row["start"] for row in mine) >= 1e3 * busy - 1


def test_queues_stand_by_device_with_their_network() -> None:
    queues = {f"{kind} {number}" for kind in ("network", "device") for number in range(3)}
    assert spans.shown(queues)[:3] == ["device 0", "network 0", "device 1"]


class _Page(HTMLParser):
    """A parser that collects loaded addresses, headings and identifiers of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.refers: set[str] = set()
        self.counts: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            words = value or ""
            if name in ("src", "href", "srcset", "data", "action") and not words.startswith("#"):
                self.loads.append(words)
            if name == "id":
                self.ids.append(words)
            if name in ("aria-labelledby", "data-chart"):
                self.refers.add(words)


def _specs(text: str) -> dict[str, Any]:
    found = re.findall(r'data-chart="([\w-]+)">(.*?)</script>', text, re.DOTALL)
    return {name: json.loads(spec) for name, spec in found}


@pytest.mark.slow("forecast report")
def test_a_forecast_page_is_whole_and_loads_nothing(plans: list[Plan]) -> None:
    losses = tuple(Loss(f"{n} x <b>T4</b>", f"takes {n}.5 h; the deadline is 1 h") for n in (3, 4))
    text = forecast_page(Result(tuple(plans), losses), {"model": "resnet50", "batch": 256})
    page = _Page(text)
    assert page.loads == []
    assert "default-src 'none'" in text
    assert len(page.ids) == len(set(page.ids))
    assert page.refers <= set(page.ids)
    assert page.counts["h1"] == 1
    assert set(_specs(text)) == {
        "scaling-chart", "cost-chart", "schedule-chart", "parts-chart", "memory-chart"
    }  # fmt: skip
    assert "3 x &lt;b&gt;T4&lt;/b&gt;" in text
    assert len(text) < 6_000_000


def test_a_page_without_plans_says_why() -> None:
    text = forecast_page(Result((), (Loss("1 x T4", "does not fit"),)), {"model": "gpt2"})
    assert "No plan meets all the conditions" in text
    assert "does not fit" in text
    assert _specs(text) == {}


@pytest.fixture(name="report", scope="module")
def report_fixture() -> ValidationReport:
    """Return a report of table rows whose forecasts are all 15 % too high."""
    cases, unread = read(TABLE)
    thin = cases[::20] + [case for case in cases if case.measures == "speedup"]
    return ValidationReport(
        judged=tuple(
            Judged(case, 1.15 * case.measured, Efficiency(0.9, 0.8) if case.devices > 1 else None)
            for case in thin
        ),
        unread=tuple(unread),
        leave="source",
    )


def test_points_have_all_rows_but_speedups(report: ValidationReport) -> None:
    points = judged.points(report)
    seconds = [each for each in report.judged if each.case.measures != "speedup"]
    assert len(points) == len(seconds) < len(report.judged)
    assert [row["ratio"] for row in points] == pytest.approx([0.15] * len(points))
    assert len(judged.efficiencies(report)) == len(report.efficiencies()) > 0


def test_bands_span_the_points(report: ValidationReport) -> None:
    points = judged.points(report)
    bands = judged.bands(points)
    assert min(row["measured"] for row in bands) == min(row["measured"] for row in points)
    for row in bands:
        assert row["high"] / row["measured"] == pytest.approx(1 + row["within"])
        assert row["low"] / row["measured"] == pytest.approx(1 - row["within"])


def test_a_validation_page_is_whole_and_loads_nothing(report: ValidationReport) -> None:
    text = validation_page(report, intervals.load(), TABLE.name)
    page = _Page(text)
    assert page.loads == []
    assert len(page.ids) == len(set(page.ids))
    assert page.refers <= set(page.ids)
    assert set(_specs(text)) == {"seconds-chart", "efficiency-chart"}
    for key in ("source", "model", "device", "scale", "runtime"):
        assert f"Errors by {key}" in text
    assert f"{len(report.unread)} rows that could not be read" in text
    assert len(text) < 6_000_000


def test_each_part_and_each_use_has_a_colour_of_its_own() -> None:
    for names, chosen in ((rows.PARTS, colours.PARTS), (rows.USES, colours.USES)):
        assert len(names) == len(chosen) == len(set(chosen))


@pytest.mark.slow("forecast report")
def test_a_network_is_named_once_and_a_correction_is_said(plans: list[Plan]) -> None:
    first = replace(plans[0], correction=Correction(1.166, 0.4, 2))
    page = forecast_page(Result((first, *plans[1:]), ()), {}, 8)
    device = first.machine.cluster.device.name
    assert f"corrected by 2 earlier runs on {device}: seconds x 1.17" in page
    assert "100 Gbit/s" in page
    assert "100 Gbit/s, 100 Gbit/s" not in page
