"""Parameters of several fits, each of which leaves out the measurements that it judges.

tools/fit_forecast.py writes the results of the fits to `data/fit.json`, as points of one `Space`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from slipstream.errors import ConfigError, reason_of
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.validate.case import PublishedCase
from slipstream.forecast.validate.space import Space

Leave = Literal["source", "model", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folds:
    """The results of several fits, as points of one `Space` of parameters.

    Args:
        guess: First guess of the parameters, which is the origin of the space.
        runtimes: Names of the frameworks (runtimes) that have fitted parameters of their own.
        all: Point of the fit to all measurements.
        without: Points of the fits that left measurements out, by fold name; `fold_of` returns the
            fold name of a measurement.
    """

    guess: Parameters
    runtimes: Sequence[str]
    all: Sequence[float]
    without: Mapping[str, Sequence[float]]

    def parameters(self) -> dict[str, Parameters]:
        """Return the parameters of each fit by fold name; "" names the fit to all measurements."""
        space = Space(self.guess, self.runtimes)
        points = {"": self.all, **self.without}
        return {name: space.parameters(point) for name, point in points.items()}


def fold_of(case: PublishedCase, leave: Leave) -> str:
    """Return the fold name of a measurement: that of the fit that left the measurement out.

    Args:
        case: Published measurement.
        leave: Part of the table that the fit left out: "source" (all measurements of the
            publisher), "model" (the publisher's measurements of the same model), or "none".
    """
    if leave == "none":
        return ""
    return case.source if leave == "source" else f"{case.source}: {model_of(case)}"


def model_of(case: PublishedCase) -> str:
    """Return the architecture and sizes of a measurement's model, without the sequence length."""
    sizes = " ".join(
        f"{key}={value:g}" for key, value in sorted(case.sizes.items()) if key != "positions"
    )
    return f"{case.architecture} {sizes}".strip()


def load(path: Path | None = None) -> Folds:
    """Read folds.

    Args:
        path: Location of a .json file (default None: the folds that Slipstream contains).

    Raises:
        ConfigError: The file cannot be read.
    """
    path = path or Path(str(resources.files("slipstream.forecast") / "data" / "fit.json"))
    try:
        return TypeAdapter(Folds).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read as fits: {reason_of(error)}") from error


def save(folds: Folds, path: Path) -> None:
    """Write folds as JSON, with one line per fold.

    Args:
        folds: Folds to write.
        path: Location of the file.
    """
    content: dict[str, Any] = TypeAdapter(Folds).dump_python(folds, mode="json")
    without = content.pop("without")
    head = [f"{json.dumps(key)}: {json.dumps(_short(value))}" for key, value in content.items()]
    lines = [f"{json.dumps(key)}: {json.dumps(_short(value))}" for key, value in without.items()]
    body = ",\n".join([*head, '"without": {\n' + ",\n".join(lines) + "\n}"])
    path.write_text("{\n" + body + "\n}\n", encoding="utf-8")


def _short(value: Any) -> Any:
    """Round all numbers in nested lists and objects to four significant digits."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.4g}"))
