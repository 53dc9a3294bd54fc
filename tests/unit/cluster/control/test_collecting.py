"""Outputs that cannot be fetched: tried again, and their machines are not given back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from slipstream.cluster.control.api import LogView
from slipstream.cluster.control.collecting import OutputsLeftError, collect_outputs
from slipstream.cluster.control.plan import RunPlan, make_plan
from slipstream.cluster.control.stages import RunStages
from slipstream.cluster.engines.protocol import RunEngine
from slipstream.cluster.records import RunLog, Store
from slipstream.cluster.spec import check_job
from slipstream.errors import ConfigError, PeerError, SlipstreamError

DONE = {"state": "succeeded", "exit_code": 0, "text": ""}


class FailingEngine:
    """An engine whose outputs come after some failures."""

    def __init__(self, failures: Sequence[SlipstreamError]) -> None:
        self.failures = list(failures)
        self.num_calls = 0

    def fetch(self, _plan: RunPlan, patterns: Sequence[str], _folder: Path) -> Sequence[str]:
        self.num_calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return patterns[1:]

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        return f"/home/runs/{plan.run}/code/{path}"


class Collection:
    """A run of an engine whose outputs are collected."""

    def __init__(self, home: Path, on: str, deadline_at: float | None, **fields: Any) -> None:
        job = {"name": "a", "command": "a", "on": on, "outputs": ["my result", "none*"], **fields}
        spec = check_job(job, "a.yaml")
        self.log = RunLog(Store(home))
        self.record = self.log.begin(
            name="a",
            engine=on,
            spec=spec.model_dump(mode="json"),
            deadline_at=deadline_at,
            facts={},
        )
        self.plan = make_plan(self.record, spec, home, home)

    def collect(self, engine: FailingEngine, *, may_keep: bool = True) -> Any:
        stages = RunStages(self.log, self.record.number, LogView())
        return collect_outputs(
            cast("RunEngine", engine), self.plan, stages, DONE, may_keep=may_keep, pauses=(0, 0)
        )

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.log.events(self.record.number))


def test_outputs_are_fetched_again_and_missing_ones_are_named(tmp_path: Path) -> None:
    run = Collection(tmp_path, "ssh", None)
    engine = FailingEngine([PeerError("lost"), PeerError("lost")])
    assert run.collect(engine) == DONE
    assert engine.num_calls == 3
    assert "outputs: nothing matches none*" in run.notes


def test_machines_with_outputs_that_stay_away_are_kept(tmp_path: Path) -> None:
    run = Collection(tmp_path, "aws", 4e9)
    with pytest.raises(OutputsLeftError) as raised:
        run.collect(FailingEngine([PeerError("lost")] * 3))
    said = str(raised.value)
    assert "`slipstream cluster attach a` tries again" in said
    assert "my result' .` fetches one output" in said
    assert "`slipstream cluster down a` gives the machines back" in said


@pytest.mark.parametrize(
    ("on", "deadline_at", "may_keep", "fields", "words"),
    [
        ("ssh", None, True, {}, "they stay in /home/runs/"),
        ("slurm", None, True, {}, "they stay in /home/runs/"),
        ("aws", 4e9, True, {"cloud": {"keep": True}}, "they stay in /home/runs/"),
        ("aws", 4e9, False, {}, "they are lost"),
        ("aws", 1.0, True, {}, "they are lost"),
        ("k8s", None, True, {}, "they are lost"),
    ],
)
def test_a_job_without_its_outputs_has_failed(
    tmp_path: Path,
    on: str,
    deadline_at: float | None,
    may_keep: bool,
    fields: dict[str, Any],
    words: str,
) -> None:
    run = Collection(tmp_path, on, deadline_at, **fields)
    engine = FailingEngine([ConfigError("the disk is full")])
    result = run.collect(engine, may_keep=may_keep)
    assert (result["state"], result["exit_code"]) == ("failed", 1)
    assert "the disk is full" in result["text"]
    assert words in result["text"]
    assert engine.num_calls == 1
