"""What a run took: from its journal into its record, and into the observations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from forecast_plans import forecast_text, plan_of

from slipstream.cluster import JobSpec, RunSession, run
from slipstream.cluster.control.outcome import (
    RunOutcome,
    deviation,
    measured_step,
    outcome_of,
    plan_differences,
)
from slipstream.cluster.records.observations import add_observation
from slipstream.cluster.spec import ForecastPlan, check_job, fill_job, read_plan

STARTED = {"event": "state", "state": "running", "hosts": ["a", "b"], "slots": [2, 2]}


def plan(**changes: Any) -> ForecastPlan:
    return read_plan(forecast_text(plan_of(**changes)), "plan.json")


def measured(seconds: float, time: float = 0.0, **rates: float) -> Mapping[str, Any]:
    return {"event": "measured", "seconds": seconds, "time": time, "rates": rates}


def outcome(**changes: Any) -> RunOutcome:
    given: dict[str, Any] = {
        "hosts": ("a",), "slots": (1,), "attempts": 1, "training_seconds": 30.0, "rates": {},
        "ended_at": 7.0,
    }  # fmt: skip
    return RunOutcome(**{**given, **changes})


def test_attempts_are_added_up_and_the_last_one_tells_hosts_and_rates() -> None:
    first = {**STARTED, "hosts": ["a"], "slots": [2]}
    entries = [first, measured(3.0, 1.0, **{"1": 5.0}), {"event": "line"}, STARTED]
    assert outcome_of(entries[:1]) is None
    assert outcome_of([*entries, measured(4.0, 9.0, **{"2": 8.0})]) == RunOutcome(
        hosts=("a", "b"),
        slots=(2, 2),
        attempts=2,
        training_seconds=7.0,
        rates={"2": 8.0},
        ended_at=9.0,
    )


@pytest.mark.parametrize(
    ("changes", "state", "expected"),
    [
        ({"rates": {"1": 128.0}}, "succeeded", (0.5, "progress")),
        ({"rates": {"1": 128.0}, "attempts": 3}, "failed", (0.5, "progress")),
        ({"rates": {"2": 128.0}}, "succeeded", (0.3, "attempt")),
        ({}, "succeeded", (0.3, "attempt")),
        ({}, "failed", None),
        ({"attempts": 2}, "succeeded", None),
    ],
)
def test_reports_of_progress_tell_a_step_or_else_the_time_of_the_only_attempt(
    changes: dict[str, Any], state: str, expected: tuple[float, str] | None
) -> None:
    step = measured_step(outcome(**changes), plan(), state)
    assert (None if step is None else (step.seconds, step.source)) == expected


def test_without_a_number_of_steps_the_time_tells_nothing() -> None:
    assert measured_step(outcome(), plan(steps=None), "succeeded") is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        ({"deadline": "9h"}, ""),
        ({"env": {"MORE": "1"}}, ""),
        ({"processes": 2}, "processes is 2 in the job and 1 in the plan"),
        ({"on": "ssh", "hosts": "1:2"}, "hosts is 1:2 in the job and 1 in the plan"),
        ({"env": {"SLIPSTREAM_PLAN": "{}"}}, "env.SLIPSTREAM_PLAN is {} in the job and"),
    ],
)
def test_a_job_that_is_not_that_of_its_plan_is_told(fields: dict[str, Any], words: str) -> None:
    spec = fill_job(check_job({"name": "a", "command": "b", **fields}, "job"), plan())
    assert deviation(outcome(), plan(), spec).startswith(words)
    assert bool(deviation(outcome(), plan(), spec)) == bool(words)
    assert ("deadline" in plan_differences(spec, plan())) == ("deadline" in fields)


def test_a_run_that_lost_a_host_is_not_that_of_its_plan() -> None:
    two = plan(hosts=2)
    spec = fill_job(check_job({"name": "a", "command": "b", "on": "ssh"}, "job"), two)
    assert deviation(outcome(), two, spec) == (
        "it has ended on 1 hosts with 1 ranks, and the plan has 2 with 1"
    )


def test_an_observation_replaces_that_of_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "observations.jsonl"
    add_observation(path, {"run": "a-1", "x": 1})
    add_observation(path, {"run": "b-2", "x": 2})
    with path.open("a") as file:
        file.write("a line that was cut\n[]\n{'")
    add_observation(path, {"run": "a-1", "x": 3})
    lines = path.read_text().splitlines()
    assert lines[1:3] == ["a line that was cut", "[]"]
    assert [json.loads(line) for line in (lines[0], lines[3])] == [
        {"run": "b-2", "x": 2},
        {"run": "a-1", "x": 3},
    ]


# ---- whole runs on this host ----

REPORTS = """
import json, os
from slipstream.cluster import report_progress

assert json.loads(os.environ["SLIPSTREAM_PLAN"])["data"] == 1
for rate in (1.0, 200.0, 200.0):
    report_progress(rate, 1)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the records of this test in a folder of its own."""
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SLIPSTREAM_PROGRESS_FILE", raising=False)
    return tmp_path / "home"


def planned_job(tmp_path: Path, script: str, **fields: object) -> JobSpec:
    (tmp_path / "plan.json").write_text(forecast_text(plan_of()))
    (tmp_path / "train.py").write_text(script)
    given = {"name": "here", "command": "train.py", "plan": "plan.json", **fields}
    return JobSpec.model_validate(given)


@pytest.mark.multiprocess
def test_what_a_run_took_stands_in_its_record_and_is_written_back(
    tmp_path: Path, home: Path
) -> None:
    assert run(planned_job(tmp_path, REPORTS), base=tmp_path) == 0
    record = RunSession(home).log.find("here")
    assert record.facts["plan"]["steps"] == 100
    took = record.facts["took"]
    assert (took["hosts"], took["slots"], took["attempts"]) == (["localhost"], [1], 1)
    assert (took["seconds_per_step"], took["source"]) == (0.32, "progress")
    assert took["dollars"] is None
    (line,) = (home / "observations.jsonl").read_text().splitlines()
    observation = json.loads(line)
    assert observation["run"] == f"here-{record.number}"
    assert (observation["forecast_seconds"], observation["measured_seconds"]) == (0.2, 0.32)
    assert observation["kind"] == plan_of()["kind"]
    events = [event.text for event in RunSession(home).log.events(record.number)]
    assert any("a step took 0.32 s, and the forecast was 0.2 s (+60%)" in text for text in events)


@pytest.mark.multiprocess
def test_a_run_that_is_not_that_of_its_plan_is_recorded_only(tmp_path: Path, home: Path) -> None:
    assert run(planned_job(tmp_path, REPORTS, processes=2), base=tmp_path) == 0
    record = RunSession(home).log.find("here")
    assert record.facts["took"]["source"] == "progress"
    assert not (home / "observations.jsonl").exists()
    events = [event.text for event in RunSession(home).log.events(record.number)]
    assert any("processes is 2 in the job and 1 in the plan" in text for text in events)


@pytest.mark.multiprocess
def test_observations_that_cannot_be_written_end_no_run(tmp_path: Path, home: Path) -> None:
    (home / "observations.jsonl").mkdir(parents=True)
    assert run(planned_job(tmp_path, "print('done')"), base=tmp_path) == 0
    record = RunSession(home).log.find("here")
    assert record.state == "succeeded"
    events = [event.text for event in RunSession(home).log.events(record.number)]
    assert any("it cannot be written back" in text for text in events)
