"""A plan of a run for engines that are not called."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.cluster.control.plan import RunPlan, make_plan
from slipstream.cluster.records import RunLog, Store
from slipstream.cluster.spec import check_job

PlanMaker = Callable[..., RunPlan]


@pytest.fixture
def plan_of(tmp_path: Path) -> PlanMaker:
    """Return a function that makes the plan of a run with some fields."""

    def make(**fields: Any) -> RunPlan:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text("print('trained')\n")
        spec = check_job({"name": "train", "command": "train.py", **fields}, "the test")
        record = RunLog(Store(tmp_path / "home")).begin(
            name="train",
            engine=spec.on,
            spec=spec.model_dump(mode="json"),
            deadline_at=None,
            facts={},
        )
        return make_plan(record, spec, code, tmp_path / "home")

    return make
