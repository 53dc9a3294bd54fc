"""The end of a run in its record: what it took, and the observation for the next forecast."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from slipstream.cluster.control.costs import cluster_costs
from slipstream.cluster.control.outcome import (
    RunOutcome,
    deviation,
    measured_step,
    observation,
    outcome_of,
)
from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.records import RunLog
from slipstream.cluster.records.observations import add_observation
from slipstream.cluster.spec import ForecastPlan
from slipstream.errors import reason_of
from slipstream.settings import observations_file

PLAN_FACT = "plan"
TOOK_FACT = "took"


def recorded_plan(facts: Mapping[str, Any]) -> ForecastPlan | None:
    """Return the plan in the record of a run, or None.

    Args:
        facts: Values of the record.
    """
    fields = facts.get(PLAN_FACT)
    return None if fields is None else ForecastPlan.model_validate(fields)


def write_back(log: RunLog, run: RunPlan, entries: Iterable[Mapping[str, Any]], state: str) -> str:
    """Record what a run took; if it has a plan, add it to the observations.

    Args:
        log: Records of runs.
        run: Run that has ended, and whose machines are given back.
        entries: Entries of its journal.
        state: Last state of the run.

    Returns:
        A sentence about a run with a plan, or "".
    """
    outcome = outcome_of(entries)
    if outcome is None:
        return ""
    plan = recorded_plan(log.find(f"#{run.record.number}").facts)
    took = asdict(outcome) | {"dollars": _spent(log, run)}
    if plan is not None:
        step = measured_step(outcome, plan, state)
        took["seconds_per_step"] = None if step is None else step.seconds
        took["source"] = None if step is None else step.source
    log.add_facts(run.record.number, {TOOK_FACT: took})
    return "" if plan is None else _observe(run, plan, outcome, state)


def _observe(run: RunPlan, plan: ForecastPlan, outcome: RunOutcome, state: str) -> str:
    why = deviation(outcome, plan, run.spec)
    step = measured_step(outcome, plan, state)
    if not why and step is None:
        why = "the job has reported no progress, and the forecast or the run has no end"
    if why or step is None:
        return f"the run tells the next forecast nothing: {why}"
    ratio = step.seconds / plan.seconds_per_step.value - 1
    found = (
        f"a step took {step.seconds:.3g} s, and the forecast was"
        f" {plan.seconds_per_step.value:.3g} s ({ratio:+.0%})"
    )
    try:
        add_observation(observations_file(run.home), observation(run.run, outcome, plan, step))
    except OSError as error:
        return f"{found}; it cannot be written back: {error.filename}: {reason_of(error)}"
    return f"{found}; the next forecast of this kind of job is corrected by it"


def _spent(log: RunLog, run: RunPlan) -> float | None:
    """Return the cost of the machines in US dollars, or None if there are none with a price."""
    costs = cluster_costs(log.store, time.time(), run.record.name)
    own = [cost for cost in costs if cost.cluster == run.run and cost.has_prices]
    return sum(cost.spent for cost in own) if own else None
