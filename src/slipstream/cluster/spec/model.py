"""The parts that all models of a job description share: checks, durations, sizes and names."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from slipstream.errors import UsageError
from slipstream.units import GIB, parse_bytes, parse_duration


class SpecModel(BaseModel):
    """A part of a job description, which cannot be changed and refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


# Ten years, in seconds: far longer than any job, and within the limits of all clocks and waits.
MAX_SECONDS = 10 * 365 * 86400.0


def _duration(value: Any) -> Any:
    return _parsed(value, lambda text: parse_duration(text, "duration", bare_seconds=True))


def _gib(value: Any) -> Any:
    return _parsed(value, lambda text: parse_bytes(text) / GIB)


def _parsed(value: Any, parse: Callable[[str], float]) -> Any:
    """Return the number of a text with a unit; pydantic reports ValueError for the field."""
    if not isinstance(value, str):
        return _plain_number(value)
    try:
        return parse(value)
    except UsageError as error:
        raise ValueError(str(error)) from error


def _plain_number(value: Any) -> Any:
    """Refuse true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("it is a truth value; allowed: a number")
    return value


def _word(text: str) -> str:
    """Refuse what the system gives to no program, and what no record can hold."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("no program can get it; allowed: text without NUL and lone surrogates")
    return text


def _variable_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError(f"{name!r} is no name of a variable; allowed: text without =")
    return name


def _command(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"{value!r} cannot be split into words: {error}") from error


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Duration = Annotated[
    float, BeforeValidator(_duration), Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)
]
Gibibytes = Annotated[float, BeforeValidator(_gib), Field(gt=0, allow_inf_nan=False)]
Dollars = Annotated[float, BeforeValidator(_plain_number), Field(gt=0, allow_inf_nan=False)]
Word = Annotated[str, AfterValidator(_word)]
VariableName = Annotated[Word, AfterValidator(_variable_name)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
Name = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$")]
Command = Annotated[tuple[Word, ...], BeforeValidator(_command), Field(min_length=1)]
