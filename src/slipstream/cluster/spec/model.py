"""The parts that all models of a job description share: checks, durations, sizes and names."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from slipstream.errors import UsageError
from slipstream.units import GIB, parse_bytes, parse_duration


class SpecModel(BaseModel):
    """A part of a job description, which cannot be changed and refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _duration(value: Any) -> Any:
    return _parsed(value, lambda text: parse_duration(text, "duration", bare_seconds=True))


def _gib(value: Any) -> Any:
    return _parsed(value, lambda text: parse_bytes(text) / GIB)


def _parsed(value: Any, parse: Callable[[str], float]) -> Any:
    """Return the number of a text with a unit; pydantic reports ValueError for the field."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except UsageError as error:
        raise ValueError(str(error)) from error


def _command(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"{value!r} cannot be split into words: {error}") from error


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0)]
Gibibytes = Annotated[float, BeforeValidator(_gib), Field(gt=0)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
Name = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$")]
Command = Annotated[tuple[str, ...], BeforeValidator(_command), Field(min_length=1)]
