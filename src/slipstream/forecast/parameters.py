"""Numbers that were fitted on published measurements: shares of peaks, of links, and runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

import tomli
from pydantic import TypeAdapter, ValidationError

from slipstream.errors import ConfigError
from slipstream.forecast.compute import Rates, Runtime
from slipstream.forecast.network import Wire

USUAL = "usual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """All that is fitted.

    Args:
        rates: that kernels reach.
        wire: what communication reaches.
        runtimes: by name; "usual" stands for those that are not known.
    """

    rates: Rates = field(default_factory=Rates)
    wire: Wire = field(default_factory=Wire)
    runtimes: Mapping[str, Runtime] = field(default_factory=lambda: {USUAL: Runtime(name=USUAL)})

    def runtime(self, name: str) -> Runtime:
        """Returns a runtime by its name; the usual one if it is not known.

        Args:
            name: as "pytorch"; `runtimes` has all.
        """
        return self.runtimes.get(name) or replace(self.runtimes[USUAL], name=name)


def load(path: Path | None = None) -> Parameters:
    """Reads fitted parameters.

    Args:
        path: of a .toml file; None: those that come with Slipstream.

    Raises:
        ConfigError: it cannot be read, or a value is not allowed.
    """
    own = Path(str(resources.files("slipstream.forecast") / "data" / "parameters.toml"))
    path = path or own
    try:
        content = tomli.loads(path.read_text(encoding="utf-8"))
        return TypeAdapter(Parameters).validate_python(content)
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read as fitted parameters: {error}") from error


def save(parameters: Parameters, path: Path, note: str) -> None:
    """Writes fitted parameters as a .toml file.

    Args:
        parameters: to write.
        path: of the file.
        note: said in its first lines.
    """
    lines = [f"# {line}" for line in note.splitlines()]
    content = TypeAdapter(Parameters).dump_python(parameters)
    for table in ("rates", "wire"):
        lines += ["", f"[{table}]", *_lines(content[table])]
    for name, runtime in sorted(content["runtimes"].items()):
        lines += ["", f"[runtimes.{name}]", *_lines(runtime)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _lines(table: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_said(value)}" for key, value in table.items()]


def _said(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"{value:.4g}"
        if isinstance(value, float)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )
