"""The fields of a Hugging Face config.json, checked when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from slipstream.errors import ConfigError


class Config:
    """The fields of a config.json.

    Args:
        origin: Path of the file, for error messages.
        fields: Value of each field, by the name of the field.
    """

    def __init__(self, origin: str, fields: Mapping[str, Any]) -> None:
        self.origin, self._fields = origin, fields
        self.model_type = str(fields.get("model_type", ""))

    def number(self, key: str, default: int | None = None) -> int:
        """Return a field that is a positive integer; a field without a default must exist.

        Raises:
            ConfigError: The field is missing or is not a positive integer.
        """
        stated = self._fields.get(key)
        value = default if stated is None else stated
        if value is None:
            raise ConfigError(f"{self.origin}: a model of type {self.model_type} needs {key!r}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.origin}: {key!r} is {value!r}, not a positive integer")
        return value

    def share(self, key: str, default: float) -> float:
        """Return a field that is a number from 0 to 1.

        Raises:
            ConfigError: The field is not a number from 0 to 1.
        """
        stated = self._fields.get(key)
        value = default if stated is None else stated
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigError(f"{self.origin}: {key!r} is {value!r}, not a number from 0 to 1")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return the value of a boolean field."""
        stated = self._fields.get(key)
        return default if stated is None else bool(stated)

    def text(self, key: str, default: str) -> str:
        """Return the value of a text field."""
        return str(self._fields.get(key) or default)

    def inside(self, key: str) -> Config:
        """Return the nested object under a key, or an empty object if the key is missing."""
        stated = self._fields.get(key)
        fields: Mapping[str, Any] = {}
        if isinstance(stated, Mapping):
            fields = cast("Mapping[str, Any]", stated)
        return Config(f"{self.origin}: {key}", {"model_type": self.model_type, **fields})

    def count(self, key: str) -> int | None:
        """Return the number of entries of a list or an object; None if the field is neither."""
        stated = self._fields.get(key)
        return (
            len(cast("Mapping[str, Any]", stated)) if isinstance(stated, Mapping | list) else None
        )


def read(path: Path) -> Config:
    """Return the config of a file, or of a folder with a config.json.

    Args:
        path: Path of the file or the folder.

    Raises:
        ConfigError: The file cannot be read, or its content is not a JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        fields: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(
            f"{file} is JSON but no object; a config.json of Hugging Face is an object"
        )
    return Config(str(file), cast("dict[str, Any]", fields))
