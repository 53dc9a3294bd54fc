"""The runs of one user: new ones are submitted, and earlier ones are opened by their names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.cluster.control.code_state import code_state
from slipstream.cluster.control.controller import Controller, RunView
from slipstream.cluster.control.plan import make_plan
from slipstream.cluster.engines.choice import make_engine
from slipstream.cluster.records import RunLog, RunRecord, Store
from slipstream.cluster.spec import JobSpec, check_job
from slipstream.errors import SlipstreamError


class Session:
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

    def submit(self, spec: JobSpec, base: Path, view: RunView) -> Controller:
        """Return the controller of a new run, or of the run of this name that goes on.

        Args:
            spec: Description of the job.
            base: Folder to which its paths are relative.
            view: View that shows the run.

        Raises:
            UsageError: the run of this name goes on with another description.
        """
        deadline_at = None if spec.deadline is None else time.time() + spec.deadline
        record, is_new = self.log.begin(
            name=spec.name,
            engine=spec.on,
            spec=spec.model_dump(mode="json"),
            deadline_at=deadline_at,
            facts={"base": str(base), **_facts_of(spec, base)},
        )
        if not is_new:
            view.note(f"the run {spec.name} goes on (it is {record.state}) and is followed")
        try:
            return self._controller(record, spec, base, view)
        except SlipstreamError as error:
            self.log.set_state(record.number, "failed", str(error), 2)
            raise

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


def _facts_of(spec: JobSpec, base: Path) -> Mapping[str, Any]:
    return {"code": code_state((base / spec.code.folder).resolve())}
