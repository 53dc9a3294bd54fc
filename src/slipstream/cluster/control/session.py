"""The runs of one user: new ones are submitted, and earlier ones are opened by their names."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slipstream.cluster.control.code_state import code_state
from slipstream.cluster.control.controller import Controller, RunView
from slipstream.cluster.control.estimate import Estimate, capped
from slipstream.cluster.control.own_address import own_network
from slipstream.cluster.control.plan import make_plan
from slipstream.cluster.control.written_back import PLAN_FACT
from slipstream.cluster.engines.choice import make_engine
from slipstream.cluster.records import RunLog, RunRecord, Store
from slipstream.cluster.spec import (
    ForecastPlan,
    JobSpec,
    check_job,
    check_place,
    fill_job,
    read_plan_file,
)
from slipstream.errors import SlipstreamError, UsageError

# Machines of a cloud get a deadline even if the job has none.
DEFAULT_DEADLINE_SECONDS = 86400.0

Confirm = Callable[[Estimate], bool]


class RunSession:
    """The runs whose records are in one folder.

    Args:
        home: Folder of the records.

    Attributes:
        home: Folder of the records.
        log: Records of runs.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = Store(home)
        self.log = RunLog(self.store)

    def submit(
        self,
        spec: JobSpec,
        base: Path,
        view: RunView,
        confirm: Confirm | None = None,
        plan: ForecastPlan | None = None,
    ) -> Controller:
        """Return the controller of a new run, or of the run of this name that goes on.

        Args:
            spec: Description of the job.
            base: Folder to which its paths are relative.
            view: View that shows the run.
            confirm: Function that is asked before a run that costs something (default None: it is
                not asked).
            plan: Plan of a forecast that fills the job (default None: that of the job, if any).

        Raises:
            UsageError: the plan cannot be used, the run of this name goes on with another
                description, or the cost was not confirmed.
        """
        if plan is None and spec.plan:
            plan = read_plan_file(base / spec.plan)
        if plan is not None:
            spec = fill_job(spec, plan)
            check_place(spec, plan)
        fields = spec.model_dump(mode="json")
        record = self.log.going_on(spec.name, engine=spec.on, spec=fields)
        if record is not None:
            view.note(f"the run {spec.name} goes on (it is {record.state}) and is followed")
            return self._controller(record, spec, base, view)
        deadline = spec.deadline
        facts: dict[str, Any] = {
            "base": str(base),
            "code": code_state((base / spec.code.folder).resolve()),
        }
        if plan is not None:
            facts[PLAN_FACT] = plan.model_dump(mode="json")
        if spec.on in ("aws", "aliyun"):
            estimate = self._estimate(spec, confirm)
            deadline = estimate.hours * 3600.0
            facts["estimate"] = asdict(estimate)
            facts["open_to"] = spec.cloud.open_to or (own_network(),)
        record = self.log.begin(
            name=spec.name,
            engine=spec.on,
            spec=fields,
            deadline_at=None if deadline is None else time.time() + deadline,
            facts=facts,
        )
        try:
            return self._controller(record, spec, base, view)
        except SlipstreamError as error:
            self.log.set_state(record.number, "failed", str(error), 2)
            raise

    def _estimate(self, spec: JobSpec, confirm: Confirm | None) -> Estimate:
        deadline = spec.deadline or DEFAULT_DEADLINE_SECONDS
        timed = spec.model_copy(update={"deadline": deadline})
        estimate = make_engine(spec, self.store).estimate(timed)
        assert estimate is not None
        estimate = capped(estimate, spec.cost_cap)
        if confirm is not None and not confirm(estimate):
            raise UsageError("the cost was not confirmed, so nothing was created")
        return estimate

    def open(self, name: str, view: RunView) -> Controller:
        """Return the controller of the newest run of a name.

        Args:
            name: Name of the run, or its number such as "#3".
            view: View that shows the run.

        Raises:
            UsageError: there is no such run.
        """
        record = self.log.find(name)
        spec = check_job(record.spec, f"the record of {name}")
        return self._controller(record, spec, Path(str(record.facts["base"])), view)

    def _controller(
        self, record: RunRecord, spec: JobSpec, base: Path, view: RunView
    ) -> Controller:
        engine = make_engine(spec, self.store)
        return Controller(self.log, engine, make_plan(record, spec, base, self.home), view)
