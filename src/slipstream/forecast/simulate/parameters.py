"""Calibrated parameters: reached shares of device and link peaks, and framework overheads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import tomli
from pydantic import TypeAdapter, ValidationError

from slipstream.errors import ConfigError, reason_of
from slipstream.forecast.hardware.tables import files_of
from slipstream.forecast.simulate.compute import Rates, Runtime
from slipstream.forecast.simulate.network import WireRates

USUAL = "usual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """All calibrated parameters.

    Args:
        rates: Calibrated rates of kernels.
        wire: Calibrated rates of communication.
        runtimes: Overheads of frameworks by name; "usual" is the default for unknown names.
    """

    rates: Rates = field(default_factory=Rates)
    wire: WireRates = field(default_factory=WireRates)
    runtimes: Mapping[str, Runtime] = field(default_factory=lambda: {USUAL: Runtime(name=USUAL)})

    def runtime(self, name: str) -> Runtime:
        """Return the overheads of a framework, or default overheads if the framework is unknown.

        Args:
            name: Name of the framework, such as "pytorch"; known names are the keys of `runtimes`.
        """
        return self.runtimes.get(name) or replace(self.runtimes[USUAL], name=name)


def load(path: Path | None = None, *, over: Path | None = None) -> Parameters:
    """Read calibrated parameters.

    Args:
        path: Path of a .toml file (default None: the file shipped with Slipstream).
        over: Path of the user's .toml file, or of a folder of such files (default None: no such
            file). Numbers in its tables `rates`, `wire` and `runtimes` replace those from `path`.

    Raises:
        ConfigError: A file cannot be read, or a name or value is not allowed.
    """
    shipped = Path(str(resources.files("slipstream.forecast") / "data" / "parameters.toml"))
    path = path or shipped
    parameters = _parameters(_read(path), path)
    for file in files_of(over) if over is not None else ():
        parameters = _with(parameters, _read(file), file)
    return parameters


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read as calibrated parameters: {reason_of(error)}"
        ) from error


def _parameters(content: Mapping[str, Any], path: Path) -> Parameters:
    try:
        return TypeAdapter(Parameters).validate_python(content)
    except ValidationError as error:
        raise ConfigError(f"{path} cannot be read as calibrated parameters: {error}") from error


def _with(parameters: Parameters, content: Mapping[str, Any], path: Path) -> Parameters:
    """Return parameters in which the numbers of a user's file replace the earlier numbers."""
    fields: dict[str, Any] = TypeAdapter(Parameters).dump_python(parameters)
    for table in ("rates", "wire"):
        fields[table] = _over(fields[table], content.get(table, {}), f"{path}: {table}")
    for name, changes in content.get("runtimes", {}).items():
        before = asdict(parameters.runtime(name))
        fields["runtimes"][name] = _over(before, changes, f"{path}: runtimes.{name}")
    return _parameters(fields, path)


def _over(fields: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    strange = sorted(changes.keys() - fields.keys())
    if strange:
        raise ConfigError(f"{where} has {strange[0]!r}; allowed: {', '.join(fields)}")
    return {**fields, **changes}


def save(parameters: Parameters, path: Path, note: str) -> None:
    """Write calibrated parameters to a .toml file.

    Args:
        parameters: Parameters to write.
        path: Path of the file.
        note: Comment for the first lines of the file.
    """
    lines = [f"# {line}" for line in note.splitlines()]
    content = TypeAdapter(Parameters).dump_python(parameters)
    for table in ("rates", "wire"):
        lines += ["", f"[{table}]", *_lines(content[table])]
    for name, runtime in sorted(content["runtimes"].items()):
        lines += ["", f"[runtimes.{name}]", *_lines(runtime)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _lines(table: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"{value:.4g}"
        if isinstance(value, float)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )
