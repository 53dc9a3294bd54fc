"""The record of a run: its description, its state, and its events in order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slipstream.cluster.records.states import END_STATES
from slipstream.cluster.records.store import EventRow, RunRow, Store
from slipstream.errors import UsageError

NUM_STAGES = 200  # stages of which the median time is taken: those of some tens of runs


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """One event of a run.

    Args:
        time: Time in seconds since 1970.
        kind: Kind of the event, such as "state", "note" or "host".
        text: Sentence that says what happened.
        facts: Further values that are no secret.
    """

    time: float
    kind: str
    text: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One run as the store knows it.

    Args:
        number: Number of the run in the store.
        name: Name of the run.
        engine: Name of the engine, such as "ssh".
        state: State of the run, one of `RUN_STATES`.
        spec: Resolved description of the job.
        facts: Further values: hosts, versions, the commit of the code.
        created_at: Time of its creation in seconds since 1970.
        deadline_at: Time at which it is ended in seconds since 1970, or None.
        ended_at: Time of its end in seconds since 1970, or None.
        exit_code: Exit code of the job, or None while it has not ended.
        message: Reason of a failure, or "".
    """

    number: int
    name: str
    engine: str
    state: str
    spec: Mapping[str, Any]
    facts: Mapping[str, Any]
    created_at: float
    deadline_at: float | None
    ended_at: float | None
    exit_code: int | None
    message: str

    @property
    def has_ended(self) -> bool:
        """Whether the run has reached its last state."""
        return self.state in END_STATES


class RunLog:
    """The runs in a store.

    Args:
        store: Database that has the runs.

    Attributes:
        store: Database that has the runs.
    """

    def __init__(self, store: Store) -> None:
        self.store = self._store = store

    def going_on(self, name: str, *, engine: str, spec: Mapping[str, Any]) -> RunRecord | None:
        """Return the run of a name that has not ended, or None.

        Args:
            name: Name of the run.
            engine: Name of the engine that the caller wants.
            spec: Resolved description that the caller wants.

        Raises:
            UsageError: a run of this name goes on with another description or engine.
        """
        with self._store.transaction() as session:
            row = _newest(session, name)
            if row is None or row.state in END_STATES:
                return None
            if row.spec != dict(spec) or row.engine != engine:
                raise UsageError(
                    f"the run {name!r} goes on (it is {row.state}) with another description; choose"
                    f" another name, or end it with: slipstream cluster down {name}"
                )
            return _record(row)

    def begin(
        self,
        *,
        name: str,
        engine: str,
        spec: Mapping[str, Any],
        deadline_at: float | None,
        facts: Mapping[str, Any],
    ) -> RunRecord:
        """Write a new run, or return the one of this name that another process has just written.

        Args:
            name: Name of the run.
            engine: Name of the engine.
            spec: Resolved description of the job.
            deadline_at: Time at which the run is ended in seconds since 1970, or None.
            facts: Further values that are no secret.
        """
        with self._store.transaction() as session:
            row = _newest(session, name)
            if row is not None and row.state not in END_STATES:
                return _record(row)
            row = RunRow(
                name=name,
                engine=engine,
                state="planned",
                spec=dict(spec),
                facts=dict(facts),
                created_at=time.time(),
                deadline_at=deadline_at,
                message="",
            )
            session.add(row)
            session.flush()
            return _record(row)

    def find(self, name: str) -> RunRecord:
        """Return the newest run of a name, or the run of a number such as "#3".

        Raises:
            UsageError: there is no such run.
        """
        with self._store.transaction() as session:
            row = _newest(session, name)
            if name.startswith("#") and name[1:].isdecimal():
                row = session.get(RunRow, int(name[1:]))
            if row is None:
                names = sorted(set(session.scalars(select(RunRow.name))))
                known = ", ".join(names[-10:]) or "none"
                raise UsageError(f"there is no run {name!r}; known: {known}")
            return _record(row)

    def all(self) -> list[RunRecord]:
        """Return all runs, the oldest first."""
        with self._store.transaction() as session:
            return [_record(row) for row in session.scalars(select(RunRow).order_by(RunRow.number))]

    def set_state(
        self, number: int, state: str, message: str = "", exit_code: int | None = None
    ) -> None:
        """Write the next state of a run, and an event; the last state of a run stays.

        Args:
            number: Number of the run.
            state: State, one of `RUN_STATES`.
            message: Reason of a failure (default "").
            exit_code: Exit code of the job (default None: not known).
        """
        with self._store.transaction() as session:
            row = session.get_one(RunRow, number)
            if row.state in END_STATES or row.state == state:
                return
            row.state = state
            row.message = message or row.message
            row.exit_code = exit_code if exit_code is not None else row.exit_code
            if state in END_STATES:
                row.ended_at = time.time()
            _add_event(session, number, "state", f"{state}: {message}" if message else state, {})

    def add_facts(self, number: int, facts: Mapping[str, Any]) -> None:
        """Add values to those of a run; a value of the same name is replaced."""
        with self._store.transaction() as session:
            row = session.get_one(RunRow, number)
            row.facts = {**row.facts, **facts}

    def note(
        self, number: int, kind: str, text: str, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Write an event of a run; the text and the values contain no secret."""
        with self._store.transaction() as session:
            _add_event(session, number, kind, text, facts or {})

    def stage_seconds(self) -> dict[str, float]:
        """Return the median time in seconds of each stage of the newest runs."""
        query = (
            select(EventRow.facts)
            .where(EventRow.kind == "stage")
            .order_by(EventRow.number.desc())
            .limit(NUM_STAGES)
        )
        times: dict[str, list[float]] = {}
        with self._store.transaction() as session:
            for facts in session.scalars(query):
                times.setdefault(facts["stage"], []).append(facts["seconds"])
        return {name: median(seconds) for name, seconds in times.items()}

    def events(self, number: int) -> list[RunEvent]:
        """Return the events of a run in order."""
        query = select(EventRow).where(EventRow.run == number).order_by(EventRow.number)
        with self._store.transaction() as session:
            return [
                RunEvent(time=row.time, kind=row.kind, text=row.text, facts=row.facts)
                for row in session.scalars(query)
            ]


def _newest(session: Session, name: str) -> RunRow | None:
    query = select(RunRow).where(RunRow.name == name).order_by(RunRow.number.desc())
    return session.scalars(query).first()


def _add_event(
    session: Session, number: int, kind: str, text: str, facts: Mapping[str, Any]
) -> None:
    row = EventRow(run=number, time=time.time(), kind=kind, text=text, facts=dict(facts))
    session.add(row)


def _record(row: RunRow) -> RunRecord:
    return RunRecord(
        number=row.number,
        name=row.name,
        engine=row.engine,
        state=row.state,
        spec=row.spec,
        facts=row.facts,
        created_at=row.created_at,
        deadline_at=row.deadline_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        message=row.message,
    )
