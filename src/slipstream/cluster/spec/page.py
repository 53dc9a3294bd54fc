"""The page docs/job-file.md, generated from the fields of the job description."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from slipstream.cluster.spec.job_spec import JobSpec
from slipstream.cluster.spec.model import Duration

_HEAD = """# The job file

`python -m slipstream.cluster.spec > docs/job-file.md` generates this page from
`src/slipstream/cluster/spec/`. A job file is YAML; `slipstream run job.yaml` runs it, and
`--set FIELD=VALUE` overrides a field, such as `--set retry.max_restarts=5`. Only `command` is
required. Durations are written `90s`, `30m` or `8h`, sizes `8GiB`. A field that does not exist, and
a field that the chosen engine does not support, is refused before anything starts.

In Python, `slipstream.cluster.spec.JobSpec` has the same fields.

| field | value | default | meaning |
| --- | --- | --- | --- |
"""

_NAMES: dict[Any, str] = {str: "text", int: "number", float: "number", bool: "true or false"}


def job_page() -> str:
    """Return the documentation page of all fields."""
    return _HEAD + "".join(_rows(JobSpec, ""))


def _rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows: list[str] = []
    for name, field in model.model_fields.items():
        inner = _inner_model(field)
        meaning = " ".join((field.description or "").split())
        rows.append(
            f"| `{prefix}{name}` | {_kind(field.annotation)} | {_default(field)} | {meaning} |\n"
        )
        if inner is not None and name != "hosts":
            rows += _rows(inner, f"{prefix}{name}{_mark(field)}.")
    return rows


def _inner_model(field: FieldInfo) -> type[BaseModel] | None:
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _mark(field: FieldInfo) -> str:
    """Return what follows the name of a list or a table of parts: [] or .NAME."""
    origin = get_origin(field.annotation)
    return {tuple: "[]", dict: ".NAME"}.get(origin, "") if isinstance(origin, type) else ""


def _kind(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return "duration" if annotation == Duration else _kind(inner[0])
    if annotation in _NAMES:
        return _NAMES[annotation]
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in inner if part is not type(None))
    if origin is tuple:
        many = {"fields": "list of fields", "duration": "two durations"}
        return many.get(_kind(inner[0]), f"list of {_kind(inner[0])}s")
    if origin is dict:
        return f"{_kind(inner[1])} for each name"
    return "fields"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required() or value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "-" if type(value).__name__ != "HostRange" else "1"
    if value in (None, "", (), {}):
        return "-"
    values = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
    return "`" + ", ".join(map(str, values)) + "`"
