"""A plan of the forecaster as a resource: what `slipstream forecast --json` says for a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, ValidationError, model_validator

from slipstream.cluster.spec.model import SpecModel
from slipstream.errors import UsageError, reason_of
from slipstream.settings import plan_environment
from slipstream.units import GIB

VERSION = 1
CLOUDS = ("aws", "aliyun")  # those whose machines an engine can create

# A forecast may be wrong, and a job that is ended early is lost: the deadline leaves twice the
# upper bound of the time, and half an hour for machines, software and data.
_DEADLINE_FACTOR = 2.0
_PREPARATION_SECONDS = 1800.0

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


class PlanInterval(SpecModel):
    """A forecast value, and the interval in which eight in ten measurements lie."""

    value: _Positive
    """Forecast value."""
    low: _Positive
    """Lower bound."""
    high: _Positive
    """Upper bound."""


class PlanCorrection(SpecModel):
    """The correction of a plan's seconds by earlier runs."""

    factor: _Positive = 1.0
    """Factor that the seconds have already."""
    observations: Annotated[int, Field(ge=0)] = 0
    """Number of earlier runs of this kind."""


class ForecastPlan(SpecModel):
    """One plan of a forecast, as far as a job needs it."""

    model: str
    """Name of the model."""
    hardware: str
    """Name of the hosts, for people."""
    hosts: _Count
    """Number of hosts."""
    processes: _Count
    """Number of ranks on each host."""
    gpus: Annotated[int, Field(ge=0)]
    """Number of GPUs of each host."""
    gpu: str
    """Text in the name of these GPUs."""
    cloud: str
    """Cloud of the offer, or "" for hosts of the user."""
    instance_type: str
    """Type of the machines there, or ""."""
    is_spot: bool
    """Whether they may be taken away for a lower price."""
    dollars_per_hour: _Positive | None
    """Price of one host in US dollars, or null."""
    batch: _Count
    """Number of samples per step over all devices."""
    steps: _Positive | None
    """Number of steps of the whole training, or null."""
    seconds_per_step: PlanInterval
    """Duration of a step."""
    memory_bytes: PlanInterval
    """Peak memory of the fullest device."""
    device_bytes: _Count
    """Memory of a device."""
    strategy: dict[str, Any]
    """Strategy: ranks, micro-batches, exchange, codec; ranks get it as SLIPSTREAM_PLAN."""
    kind: dict[str, str | int | float]
    """Kind of the training, for its observation."""
    setup: dict[str, str | int | float]
    """Setup of the training, for its observation."""
    correction: PlanCorrection = PlanCorrection()
    """Correction of the seconds by earlier runs."""

    @model_validator(mode="after")
    def _fits(self) -> ForecastPlan:
        needed, there = self.memory_bytes.value / GIB, self.device_bytes / GIB
        if needed > there:
            raise ValueError(
                f"its fullest device needs {needed:.1f} GiB and has {there:.1f} GiB; forecast a"
                " plan for devices with more memory, or with a smaller batch"
            )
        return self

    @property
    def seconds(self) -> PlanInterval | None:
        """Duration of the whole training, or None if its number of steps is not known."""
        return None if self.steps is None else self._scaled(self.steps)

    @property
    def dollars(self) -> PlanInterval | None:
        """Cost of the whole training, or None if its time or the price is not known."""
        if self.steps is None or self.dollars_per_hour is None:
            return None
        return self._scaled(self.steps * self.hosts * self.dollars_per_hour / 3600.0)

    def _scaled(self, factor: float) -> PlanInterval:
        step = self.seconds_per_step
        return PlanInterval(
            value=step.value * factor, low=step.low * factor, high=step.high * factor
        )


def read_plan(text: str, source: str, choose: int = 1) -> ForecastPlan:
    """Return a plan of a forecast.

    Args:
        text: Output of `slipstream forecast --json`, or a file that its `-o` wrote.
        source: Name of the source, for messages.
        choose: Number of the plan, 1 for the best (default 1).

    Raises:
        UsageError: the text is no forecast, has another version or no such plan, or the plan cannot
            become a job.
    """
    content = _forecast_in(text, source)
    plans: list[Any] = content["plans"]
    if not plans:
        raise UsageError(f"{source} has no plan: no hosts that it allows fit the model")
    if not 1 <= choose <= len(plans):
        raise UsageError(f"--choose is {choose}; {source} has the plans 1 to {len(plans)}")
    entry: Any = plans[choose - 1]
    fields = cast("Mapping[str, Any]", entry).get("job") if isinstance(entry, dict) else None
    try:
        return ForecastPlan.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(_problem(detail) for detail in error.errors()[:3])
        raise UsageError(f"{source}: plan {choose} cannot become a job: {problems}") from error


def read_plan_file(path: Path, choose: int = 1) -> ForecastPlan:
    """Return a plan of a file; see `read_plan`.

    Args:
        path: Path of the file.
        choose: Number of the plan (default 1).

    Raises:
        UsageError: the file cannot be read, or `read_plan` refuses it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the plan {path} cannot be read: {reason_of(error)}") from error
    return read_plan(text, str(path), choose)


def plan_fields(plan: ForecastPlan, engine: str) -> dict[str, Any]:
    """Return the fields of a job that a plan fills.

    Args:
        plan: Plan of a forecast.
        engine: Engine of the job; machines and costs are filled for that cloud only.
    """
    fields: dict[str, Any] = {"hosts": plan.hosts, "processes": plan.processes}
    if plan.gpus:
        fields["resources"] = {"gpus": plan.gpus, "gpu": plan.gpu}
    fields["env"] = plan_environment(plan.strategy)
    if plan.seconds is not None:
        longest = _DEADLINE_FACTOR * plan.seconds.high + _PREPARATION_SECONDS
        fields["deadline"] = float(-(-longest // 60) * 60)
    if plan.cloud == engine:
        fields["cloud"] = {"instance_type": plan.instance_type, "spot": plan.is_spot}
        if plan.dollars_per_hour is not None and "deadline" in fields:
            hours = fields["deadline"] / 3600.0
            fields["cost_cap"] = round(plan.hosts * plan.dollars_per_hour * hours, 2) or 0.01
    return fields


def flat_plan_fields(plan: ForecastPlan, engine: str) -> dict[str, Any]:
    """Return the fields of `plan_fields` by their names, such as "resources.gpus".

    Args:
        plan: Plan of a forecast.
        engine: Engine of the job.
    """
    flat: dict[str, Any] = {}
    for name, value in plan_fields(plan, engine).items():
        if isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            flat |= {f"{name}.{key}": inner[key] for key in inner}
        else:
            flat[name] = value
    return flat


def _forecast_in(text: str, source: str) -> Mapping[str, Any]:
    """Return the fields of a forecast of this version."""
    try:
        content: Any = json.loads(text)
    except ValueError as error:
        begins = f"begins with {text.strip()[:40]!r}" if text.strip() else "is empty"
        raise UsageError(
            f"{source} is no JSON: it {begins}; allowed: the output of slipstream forecast MODEL"
            " --batch 64 --json"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("plans"), list):  # pyright: ignore[reportUnknownMemberType]
        raise UsageError(
            f"{source} is JSON without plans; allowed: the output of slipstream forecast MODEL"
            " --batch 64 --json"
        )
    fields = cast("Mapping[str, Any]", content)
    if fields.get("version") != VERSION:
        raise UsageError(
            f"{source} has version {fields.get('version')!r} of the format, and this Slipstream"
            f" reads version {VERSION}; call slipstream forecast of this version again"
        )
    return fields


def _problem(detail: Any) -> str:
    place = ".".join(map(str, detail["loc"]))
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
