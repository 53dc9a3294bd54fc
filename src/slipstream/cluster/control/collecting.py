"""The outputs of a run are collected; machines that alone have them are not given back."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.control.stages import RunStages
from slipstream.cluster.engines.layout import read_layout
from slipstream.cluster.engines.protocol import RunEngine
from slipstream.cluster.head.spot_notice import SERVICES
from slipstream.errors import ConfigError, PeerError, SlipstreamError

# Pauses in seconds before outputs are fetched again. Chosen by hand.
PAUSES = (5.0, 10.0, 15.0)


class OutputsLeftError(PeerError):
    """Read the message: the outputs could not be fetched, and their machines go on."""


def collect_outputs(
    engine: RunEngine,
    plan: RunPlan,
    stages: RunStages,
    result: Mapping[str, Any],
    *,
    may_keep: bool,
    pauses: Sequence[float] = PAUSES,
) -> Mapping[str, Any]:
    """Bring the outputs of a run back; return its result, a failure if they stay away.

    Args:
        engine: Engine of the run.
        plan: Run whose job has ended.
        stages: Listener for remarks.
        result: Last state of the job.
        may_keep: Whether machines of a cloud may be kept for the outputs.
        pauses: Pauses in seconds before further attempts (default PAUSES).

    Raises:
        OutputsLeftError: they cannot be fetched, and the machines must not be given back yet.
    """
    try:
        with stages.stage("outputs"):
            missing = _fetch(engine, plan, stages, pauses)
    except SlipstreamError as error:
        problem = f"the outputs cannot be brought back: {error}"
        stages.note(problem)
        if may_keep and _only_there(plan):
            raise OutputsLeftError(_what_to_do(plan, problem)) from error
        where = _place(engine, plan)
        if where:
            stages.note(where)
        if int(result["exit_code"]) != 0:
            return result
        return {**result, "state": "failed", "exit_code": 1, "text": f"{problem}; {where}"}
    if missing:
        stages.note(f"outputs: nothing matches {', '.join(missing)}")
    return result


def _fetch(
    engine: RunEngine, plan: RunPlan, stages: RunStages, pauses: Sequence[float]
) -> Sequence[str]:
    """Fetch the outputs; try again after each pause, unless somebody must mend something."""
    for pause in pauses:
        try:
            return engine.fetch(plan, plan.spec.outputs, plan.code_folder)
        except ConfigError:
            raise
        except SlipstreamError as error:
            stages.note(f"the outputs are fetched again in {pause:g} s: {error}")
            time.sleep(pause)
    return engine.fetch(plan, plan.spec.outputs, plan.code_folder)


def _only_there(plan: RunPlan) -> bool:
    """Return whether a release deletes the machines with the outputs, before their deadline."""
    deadline_at = plan.record.deadline_at
    is_over = deadline_at is not None and time.time() >= deadline_at
    return plan.spec.on in SERVICES and not plan.spec.cloud.keep and not is_over


def _what_to_do(plan: RunPlan, problem: str) -> str:
    name = plan.record.name
    moment = "their deadline"
    if plan.record.deadline_at is not None:
        moment = f"{datetime.fromtimestamp(plan.record.deadline_at):%Y-%m-%d %H:%M:%S}"
    source = shlex.quote(f"{read_layout(plan).head}:{plan.spec.outputs[0]}")
    return (
        f"{problem}; the machines are kept until {moment}, and cost money: `slipstream cluster"
        f" attach {name}` tries again and then gives them back, `slipstream cluster scp {name}"
        f" {source} .` fetches one output, `slipstream cluster down {name}` gives the machines"
        " back in any case"
    )


def _place(engine: RunEngine, plan: RunPlan) -> str:
    """Return a sentence part that says where the outputs stay, or that they are gone."""
    if plan.spec.on == "slurm":
        return f"they stay in {engine.path_on_host(plan, '')}"
    if plan.spec.on == "ssh" or (plan.spec.on in SERVICES and plan.spec.cloud.keep):
        return f"they stay in {engine.path_on_host(plan, '')} on {read_layout(plan).head}"
    return "they are lost with what is given back"
