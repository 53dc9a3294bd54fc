"""What a run really took, beside the forecast of its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slipstream.cluster.spec import ForecastPlan, JobSpec
from slipstream.cluster.spec.plan import flat_plan_fields

VERSION = 1  # of an observation

# Fields without which a run is not the run of its plan. The deadline and the costs may differ.
_DECIDING = ("hosts", "processes", "resources", "env")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutcome:
    """What a run really took.

    Args:
        hosts: Names of the hosts of the last attempt.
        slots: Numbers of ranks of these hosts.
        attempts: Number of attempts.
        training_seconds: Time from the start of the ranks to their end in seconds, over all
            attempts.
        rates: Samples per second that the job has reported, by the number of hosts.
        ended_at: Time of the end in seconds since 1970.
    """

    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    attempts: int
    training_seconds: float
    rates: Mapping[str, float]
    ended_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMeasurement:
    """The measured duration of a step.

    Args:
        seconds: Duration of a step in seconds.
        source: "progress" for what the job has reported, "attempt" for the time from the start of
            the ranks to their end, divided by the number of steps.
    """

    seconds: float
    source: Literal["progress", "attempt"]


def outcome_of(entries: Iterable[Mapping[str, Any]]) -> RunOutcome | None:
    """Return what a run took, from its journal; None if no attempt has ended.

    Args:
        entries: Entries of the journal.
    """
    hosts: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    measured: dict[int, Mapping[str, Any]] = {}
    for entry in entries:
        if entry.get("event") == "state" and entry.get("hosts"):
            hosts, slots = tuple(entry["hosts"]), tuple(entry["slots"])
        elif entry.get("event") == "measured":
            measured[len(measured)] = entry
    if not measured:
        return None
    return RunOutcome(
        hosts=hosts,
        slots=slots,
        attempts=len(measured),
        training_seconds=sum(float(entry["seconds"]) for entry in measured.values()),
        rates=measured[len(measured) - 1]["rates"],
        ended_at=float(measured[len(measured) - 1]["time"]),
    )


def measured_step(outcome: RunOutcome, plan: ForecastPlan, state: str) -> StepMeasurement | None:
    """Return the measured duration of a step, or None if nothing tells it.

    Args:
        outcome: Times and rates of the run.
        plan: Plan of the run.
        state: Last state of the run. Its time tells the step only if it has succeeded at once.
    """
    rate = outcome.rates.get(str(plan.hosts))
    if rate:
        return StepMeasurement(seconds=plan.batch / rate, source="progress")
    if plan.steps is None or state != "succeeded" or outcome.attempts > 1:
        return None
    return StepMeasurement(seconds=outcome.training_seconds / plan.steps, source="attempt")


def deviation(outcome: RunOutcome, plan: ForecastPlan, spec: JobSpec) -> str:
    """Return why a run is not the run of its plan, or "" if it is.

    Args:
        outcome: Hosts of the run.
        plan: Plan of the run.
        spec: Description of the job.
    """
    differences = plan_differences(spec, plan)
    for name, (planned, chosen) in differences.items():
        if name.split(".", maxsplit=1)[0] in _DECIDING or name == "cloud.instance_type":
            return f"{name} is {chosen} in the job and {planned} in the plan"
    if outcome.slots != (plan.processes,) * plan.hosts:
        ranks = ", ".join(map(str, outcome.slots))
        return (
            f"it has ended on {len(outcome.hosts)} hosts with {ranks} ranks, and the plan has"
            f" {plan.hosts} with {plan.processes}"
        )
    return ""


def plan_differences(spec: JobSpec, plan: ForecastPlan) -> dict[str, tuple[object, object]]:
    """Return the values of a plan and of a job, by field, where they differ.

    Args:
        spec: Description of the job.
        plan: Plan of the job.
    """
    found: dict[str, tuple[object, object]] = {}
    chosen = spec.model_dump()
    chosen["hosts"] = (
        spec.hosts.max
        if spec.hosts.min == spec.hosts.max
        else (f"{spec.hosts.min}:{spec.hosts.max}")
    )
    for name, planned in flat_plan_fields(plan, spec.on).items():
        table, _, key = name.partition(".")
        value = chosen[table].get(key) if key else chosen[table]
        if value != planned:
            found[name] = (planned, value)
    return found


def observation(
    run: str, outcome: RunOutcome, plan: ForecastPlan, step: StepMeasurement
) -> dict[str, Any]:
    """Return a line of the file of observations.

    Args:
        run: Identifier of the run.
        outcome: Times of the run.
        plan: Plan of the run.
        step: Measured duration of a step.
    """
    return {
        "version": VERSION,
        "run": run,
        "ended_at": outcome.ended_at,
        "model": plan.model,
        "hardware": plan.hardware,
        "kind": plan.kind,
        "setup": plan.setup,
        "forecast_seconds": plan.seconds_per_step.value / plan.correction.factor,
        "measured_seconds": step.seconds,
        "source": step.source,
    }
