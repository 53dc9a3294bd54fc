"""Frozen dataclasses as JSON files: written atomically, and read with a check of every field."""

from __future__ import annotations

import json
import os
import types
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def as_json(value: Any) -> str:
    """Return a dataclass as JSON text."""
    return json.dumps(asdict(value), separators=(",", ":"), ensure_ascii=False)


def from_json(kind: type[T], text: str) -> T:
    """Return the dataclass in a JSON text.

    Raises:
        ValueError: the text is no JSON, or a field is missing or has another type.
    """
    return _decode(kind, json.loads(text), kind.__name__)


def write_atomically(path: Path, text: str) -> None:
    """Write a file such that readers see either the old content or the whole new one.

    The folder is made if it is missing.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8", errors="replace")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _decode(next(each for each in arguments if each is not type(None)), value, where)
    if origin is tuple:
        _expect(list, value, where)
        return tuple(
            _decode(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value)
        )
    if origin is dict:
        _expect(dict, value, where)
        return {str(name): _decode(arguments[1], item, where) for name, item in value.items()}
    if is_dataclass(kind):
        return _decode_fields(cast("type[Any]", kind), value, where)
    if kind is float and isinstance(value, int):
        return float(value)
    _expect(kind, value, where)
    return value


def _decode_fields(kind: type[Any], value: Any, where: str) -> Any:
    """Return a dataclass; fields that it does not have are ignored."""
    _expect(dict, value, where)
    hints = get_type_hints(kind)
    given = {
        each.name: _decode(hints[each.name], value[each.name], f"{where}.{each.name}")
        for each in fields(kind)
        if each.name in value
    }
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _expect(kind: type[Any], value: Any, where: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{where} is {value!r:.80}; allowed: a value of type {kind.__name__}")
