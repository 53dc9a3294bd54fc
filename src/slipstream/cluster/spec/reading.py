"""Reading job descriptions: YAML files, with values that the command line overrides."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from slipstream.cluster.spec.job_spec import JobSpec
from slipstream.cluster.spec.plan import CLOUDS, ForecastPlan, plan_fields, read_plan_file
from slipstream.errors import UsageError

_INTEGER = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TRUTH = "tag:yaml.org,2002:bool"

# The whole text of a value may be far longer than its YAML, because of aliases.
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxother = 200


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain values: 2:4 is no number of base 60, and `on` is no truth value.

    A key that a table has twice is refused.
    """

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if isinstance(key, yaml.ScalarNode):
                name, line = (key.tag, key.value), key.start_mark.line + 1
                if name in lines:
                    raise yaml.YAMLError(
                        f"the key {key.value!r} of line {lines[name]} is in line {line} again"
                    )
                lines[name] = line
        return node


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in (_INTEGER, _FLOAT, _TRUTH)]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType]
    _INTEGER, re.compile(r"[-+]?[0-9]+$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType]
    _FLOAT,
    re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType]
    _TRUTH, re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def _load(text: str) -> Any:
    return yaml.load(text, _Loader)


def read_job(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """Return the job of a YAML file.

    Args:
        path: Path of the file; its name is the name of the job, unless the file has one.
        overrides: Assignments such as "hosts=2:4" or "retry.max_restarts=5", whose values are YAML
            (default none).

    Raises:
        UsageError: the file cannot be read, or has a field or a value that is not allowed; the
            message names each of them. Or its plan cannot be used.
    """
    try:
        fields = _load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the job file {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"the job file {path} is no YAML: {error}") from error
    if not isinstance(fields, dict):
        raise UsageError(f"the job file {path} has no fields; allowed: lines such as name: train")
    fields = cast("dict[str, Any]", fields)
    fields.setdefault("name", name_of(path.stem))
    job = check_job(fields, str(path), overrides)
    return fill_job(job, read_plan_file(path.parent / job.plan)) if job.plan else job


def check_job(fields: Mapping[str, Any], source: str, overrides: Sequence[str] = ()) -> JobSpec:
    """Return the job with some fields.

    Args:
        fields: Fields of the job.
        source: Name of the source of the fields, for the message.
        overrides: Assignments to further fields, as for `read_job` (default none).

    Raises:
        UsageError: a field or a value is not allowed; the message names each of them.
    """
    chosen = dict(fields)
    for assignment in overrides:
        _override(chosen, assignment)
    try:
        return JobSpec.model_validate(chosen)
    except ValidationError as error:
        problems = "; ".join(_problem(detail) for detail in error.errors())
        raise UsageError(f"{source}: {problems}") from error


def fill_job(job: JobSpec, plan: ForecastPlan) -> JobSpec:
    """Return a job whose fields are filled from a plan, where the job does not set them.

    Args:
        job: Description of the job.
        plan: Plan of a forecast.
    """
    chosen = job.model_dump(exclude_unset=True)
    if "on" not in chosen and job.ssh.hosts:
        chosen["on"] = "ssh"
    elif "on" not in chosen and plan.cloud in CLOUDS:
        chosen["on"] = plan.cloud
    filled = _over(plan_fields(plan, chosen.get("on", "")), chosen)
    return check_job(filled, "the job with its plan")


def check_place(job: JobSpec, plan: ForecastPlan) -> None:
    """Refuse a job with a plan if nobody has said where its hosts are.

    Args:
        job: Description of the job, filled from the plan.
        plan: Plan of a forecast.

    Raises:
        UsageError: the hosts are not this machine, and the job has no engine.
    """
    if "on" in job.model_fields_set:
        return
    if plan.cloud:
        raise UsageError(
            f"the plan is for {plan.hardware}, and Slipstream creates machines on"
            f" {' and '.join(CLOUDS)} only; name hosts that you have made there (-H a,b, or on"
            " and ssh.hosts in the job), or forecast with --clouds aws"
        )
    if job.hosts.max > 1:
        raise UsageError(
            f"the job has {job.hosts.max} hosts of your own; name them (-H a,b, or on and ssh.hosts"
            " in the job), or choose an engine that finds hosts, such as --on slurm"
        )


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of which those of `above` prevail; tables are joined."""
    joined = dict(below)
    for name, value in above.items():
        inner = joined.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = _over(cast("Mapping[str, Any]", inner), cast("Mapping[str, Any]", value))
        joined[name] = value
    return joined


def name_of(text: str) -> str:
    """Return a text as a name of a run."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = name if name[:1].isalpha() else f"job-{name}"
    return name[:32].strip("-")


def _override(fields: dict[str, Any], assignment: str) -> None:
    name, is_given, text = assignment.partition("=")
    if not is_given or not name:
        raise UsageError(f"--set is {assignment!r}; allowed: FIELD=VALUE, such as hosts=2:4")
    *folders, last = name.split(".")
    table: dict[str, Any] = fields
    for folder in folders:
        inner = table.setdefault(folder, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set is {assignment!r}, but {folder} has no fields")
        table = cast("dict[str, Any]", inner)
    try:
        table[last] = _load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"--set is {assignment!r}, whose value is no YAML: {error}") from error


def _problem(detail: Any) -> str:
    place = ".".join(str(part) for part in detail["loc"]) or "the job"
    if detail["type"] == "extra_forbidden":
        allowed = ", ".join(_fields_at(detail["loc"][:-1]))
        return f"there is no field {place}; allowed: {allowed}"
    received = "" if detail["type"] == "missing" else f" is {_short(detail['input'])}"
    return f"{place}{received}: {detail['msg'].removeprefix('Value error, ')}"


def _short(value: object) -> str:
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(location: Sequence[Any]) -> list[str]:
    model: Any = JobSpec
    for name in location:
        fields = getattr(model, "model_fields", {})
        if name not in fields:
            return ["those of docs/job-file.md"]
        model = fields[name].annotation
    return sorted(getattr(model, "model_fields", {}))
