"""The data file of a calibrated machine, in the schema of `slipstream.forecast.hardware`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from slipstream.forecast.calibrate.measured import Calibration, tables
from slipstream.forecast.hardware import load
from slipstream.forecast.simulate import parameters

_HEAD = """\
# Measured by `slipstream forecast calibrate`. Units: GiB, 1e9 bytes/s, 1e12 FLOP/s. These are rates
# that kernels and collectives reach, not peaks, so their shares in [rates] and [wire] are 1.
# slipstream forecast MODEL --batch 64 --own 1x{name} --hardware {file}
"""


def write(calibration: Calibration, path: Path) -> None:
    """Write a data file, and check the file by loading it in the same way as a forecast.

    Args:
        calibration: Measurements of a machine.
        path: Location of the .toml file; missing folders are created.

    Raises:
        ConfigError: The measurements do not make a valid data file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    head = _HEAD.format(name=calibration.name, file=path.name)
    path.write_text(head + text(tables(calibration)), encoding="utf-8")
    load(path)
    parameters.load(over=path)


def text(content: Mapping[str, Any]) -> str:
    """Return tables as TOML; floating-point numbers have four significant digits.

    Args:
        content: Values by name; each is a table, a list of tables, or a mapping from names to
            tables.
    """
    lines: list[str] = []
    for name, value in content.items():
        for header, table in _tables(name, value):
            lines += ["", header, *(f"{key} = {_value(field)}" for key, field in table.items())]
    return "\n".join(lines) + "\n"


def _tables(name: str, value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return each TOML header with the table that is written below the header."""
    if isinstance(value, list):
        rows = cast("list[Mapping[str, Any]]", value)
        return [(f"[[{name}]]", row) for row in rows]
    if all(isinstance(entry, Mapping) for entry in value.values()):
        return [(f"[{name}.{key}]", row) for key, row in value.items()]
    return [(f"[{name}]", value)]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return "{ " + ", ".join(f"{key} = {_value(field)}" for key, field in pairs) + " }"
    return json.dumps(value, ensure_ascii=False)
