"""A forecast as JSON, without the timelines of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slipstream.forecast.report.job_plan import VERSION, job_plan
from slipstream.forecast.report.terminal import launch_command, strategy_words
from slipstream.forecast.search.plan import Interval, MemoryFit, Plan
from slipstream.forecast.search.search import Result
from slipstream.forecast.work.strategy import Strategy
from slipstream.units import GIB


def as_json(result: Result, model: str) -> dict[str, Any]:
    """Return a forecast as dicts and lists that `json.dumps` accepts.

    The result omits the timeline of each plan's step: the tasks of each resource with their times.

    Args:
        result: Ranked plans and rejected hosts, from a search.
        model: Name of the model.
    """
    return {
        "version": VERSION,
        "steps": result.steps,
        "plans": [
            {**_plan(plan), "job": job_plan(plan, model, result.steps)} for plan in result.plans
        ],
        "losses": [asdict(loss) for loss in result.losses],
        "fit": None if result.fit is None else _fit(result.fit),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    machine, strategy, step = plan.machine, plan.strategy, plan.step
    cluster = machine.cluster
    return {
        "machine": machine.name,
        "device": cluster.device.name,
        "devices": plan.devices,
        "hosts": plan.hosts,
        "per_host": cluster.per_host,
        "network": None if cluster.between is None else _link(cluster.between),
        "inside": _link(cluster.inside),
        "dollars_per_hour": machine.dollars_per_hour,
        "offer": None if machine.offer is None else machine.offer.model_dump(),
        "strategy": _strategy(strategy),
        "words": ", ".join(strategy_words(strategy)),
        "others": [
            {"strategy": _strategy(other.strategy), "why": other.why} for other in plan.others
        ],
        "seconds_per_step": asdict(plan.seconds_per_step),
        "seconds_per_epoch": _interval(plan.seconds_per_epoch),
        "seconds": _interval(plan.seconds),
        "dollars": _interval(plan.dollars),
        "step": {
            name: getattr(step, name)
            for name in (
                "seconds", "compute", "moved", "tensor", "bubble", "exchange", "optimizer", "host",
                "input",
            )
        },
        "memory": asdict(plan.memory),
        "memory_bytes": asdict(plan.peak),
        "device_bytes": int(cluster.device.memory_gib * GIB),
        "efficiency": asdict(plan.efficiency),
        "mfu": asdict(plan.mfu),
        "precision": machine.precision,
        "command": launch_command(plan),
        "limit": plan.limit,
    }  # fmt: skip


def _fit(fit: MemoryFit) -> dict[str, Any]:
    return {
        "machine": fit.machine.name,
        "hosts": fit.hosts,
        "strategy": _strategy(fit.strategy),
        "fits": fit.fits,
        "memory_bytes": fit.num_bytes,
        "is_least": fit.is_least,
        "device_bytes": int(fit.machine.cluster.device.memory_gib * GIB),
        "changes": [
            {
                "words": remedy.words,
                "strategy": _strategy(remedy.strategy),
                "memory_bytes": remedy.num_bytes,
                "seconds_per_step": remedy.seconds,
            }
            for remedy in fit.remedies
        ],
    }


def _strategy(strategy: Strategy) -> dict[str, Any]:
    layers = {name: choice.value for name, choice in strategy.layers}
    return {**asdict(strategy), "exchange": strategy.exchange.value, "layers": layers}


def _interval(interval: Interval | None) -> Mapping[str, float] | None:
    return None if interval is None else asdict(interval)


def _link(link: Any) -> dict[str, Any]:
    return dict(link.model_dump())
