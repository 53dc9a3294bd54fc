"""The part of a plan from which `slipstream run --plan` makes a job.

`slipstream.cluster.spec.plan` reads it; a change of its fields needs another `VERSION` there too.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from slipstream.forecast.hardware import Device
from slipstream.forecast.search.machines import several
from slipstream.forecast.search.plan import Plan
from slipstream.forecast.work.strategy import Strategy
from slipstream.units import GIB

VERSION = 1

_MEASURED = re.compile(r"measured \S+: (?P<title>.+)")
# Where NVIDIA's names have a space that the names of devices lack, as in GeForce GTX 1080 Ti.
_SPACES = re.compile(r"(?<=TX)(?=\d)|(?<=\d)(?=Ti)|(?<=n)(?=X)")


def job_plan(plan: Plan, model: str, steps: float | None) -> dict[str, Any]:
    """Return a plan as fields of a job, made of dicts and lists that `json.dumps` accepts.

    Args:
        plan: Plan to run.
        model: Name of the model.
        steps: Number of steps of the whole training; None if it is unknown.
    """
    machine, device = plan.machine, plan.machine.cluster.device
    offer, earlier = machine.offer, plan.correction
    is_gpu = device.kind == "gpu"
    return {
        "model": model,
        "hardware": machine.name if plan.hosts == 1 else several(machine, plan.hosts),
        "hosts": plan.hosts,
        "processes": plan.devices // plan.hosts,
        "gpus": machine.cluster.per_host if is_gpu else 0,
        "gpu": gpu_name(device) if is_gpu else "",
        "cloud": "" if offer is None else offer.cloud,
        "instance_type": "" if offer is None else offer.instance,
        "is_spot": offer is not None and offer.market == "spot",
        "dollars_per_hour": machine.dollars_per_hour,
        "batch": plan.setup.batch,
        "steps": steps,
        "seconds_per_step": asdict(plan.seconds_per_step),
        "memory_bytes": asdict(plan.memory),
        "device_bytes": int(device.memory_gib * GIB),
        "strategy": {**_changed(plan.strategy), "precision": machine.precision},
        "kind": asdict(plan.kind),
        "setup": asdict(plan.setup),
        "correction": {"factor": earlier.factor, "observations": earlier.observations},
    }


def gpu_name(device: Device) -> str:
    """Return a text that is a part of the name that NVIDIA's driver gives to a device.

    Args:
        device: GPU of the tables, or of a file of measured speeds.
    """
    measured = _MEASURED.fullmatch(device.source)
    return measured["title"] if measured else _SPACES.sub(" ", device.name.partition("-")[0])


def _changed(strategy: Strategy) -> dict[str, Any]:
    """Return the numbers of samples and ranks of a strategy, and all choices that are not usual."""
    usual = Strategy()
    kept = ("data", "micro_batch", "micro_batches")
    values = {
        name: value
        for name, value in asdict(strategy).items()
        if name in kept or value != getattr(usual, name)
    }
    if "exchange" in values:
        values["exchange"] = strategy.exchange.value
    if "layers" in values:
        values["layers"] = {name: choice.value for name, choice in strategy.layers}
    return values
