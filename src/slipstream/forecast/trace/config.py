"""What a config.json of Hugging Face says, checked where it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from slipstream.errors import ConfigError


class Config:
    """What a config.json says.

    Args:
        origin: of it, for people.
        fields: of the file.
    """

    def __init__(self, origin: str, fields: Mapping[str, Any]) -> None:
        self.origin, self._fields = origin, fields
        self.model_type = str(fields.get("model_type", ""))

    def number(self, key: str, default: int | None = None) -> int:
        """Returns a positive integer; no default: it must be there.

        Raises:
            ConfigError: there is none, or it is something else.
        """
        found = self._fields.get(key)
        value = default if found is None else found
        if value is None:
            raise ConfigError(f"{self.origin}: a model of type {self.model_type} needs {key!r}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.origin}: {key!r} is {value!r}, not a positive integer")
        return value

    def share(self, key: str, default: float) -> float:
        """Returns a number from 0 to 1.

        Raises:
            ConfigError: it is something else.
        """
        found = self._fields.get(key)
        value = default if found is None else found
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigError(f"{self.origin}: {key!r} is {value!r}, not a number from 0 to 1")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Returns whether something is so."""
        found = self._fields.get(key)
        return default if found is None else bool(found)

    def text(self, key: str, default: str) -> str:
        """Returns a word."""
        return str(self._fields.get(key) or default)

    def inside(self, key: str) -> Config:
        """Returns the object under a key, empty where there is none."""
        found = self._fields.get(key)
        fields: Mapping[str, Any] = {}
        if isinstance(found, Mapping):
            fields = cast("Mapping[str, Any]", found)
        return Config(f"{self.origin}: {key}", {"model_type": self.model_type, **fields})

    def count(self, key: str) -> int | None:
        """Returns how many entries a list or an object has; None where there is none."""
        found = self._fields.get(key)
        return len(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping | list) else None


def read(path: Path) -> Config:
    """Returns the config of a file, or of a folder with a config.json.

    Args:
        path: of either.

    Raises:
        ConfigError: it cannot be read, or is no JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        fields: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{file} holds no JSON object, as a config of Hugging Face is")
    return Config(str(file), cast("dict[str, Any]", fields))
