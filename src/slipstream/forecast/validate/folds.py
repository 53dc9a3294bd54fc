"""Parameters that were fitted without a source, or without a model, so that no row judges itself.

They come with Slipstream as points of one space (`data/fit.json`, by tools/fit_forecast.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from slipstream.errors import ConfigError
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.validate.case import Case
from slipstream.forecast.validate.space import Space

Leave = Literal["source", "model", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folds:
    """Points of fits.

    Args:
        guess: the origin of the space.
        runtimes: with knobs of their own.
        all: the point that fits all rows.
        without: by what was left out: a source, or a source and a model (`fold_of`).
    """

    guess: Parameters
    runtimes: Sequence[str]
    all: Sequence[float]
    without: Mapping[str, Sequence[float]]

    def parameters(self) -> dict[str, Parameters]:
        """Returns the parameters of each fold; "" has those that fit all rows."""
        space = Space(self.guess, self.runtimes)
        points = {"": self.all, **self.without}
        return {name: space.parameters(point) for name, point in points.items()}


def fold_of(case: Case, leave: Leave) -> str:
    """Returns what is left out where a case is judged.

    Args:
        case: of the table.
        leave: its whole source, its model in that source, or nothing.
    """
    if leave == "none":
        return ""
    return case.source if leave == "source" else f"{case.source}: {model_of(case)}"


def model_of(case: Case) -> str:
    """Returns the model of a case, whatever its batch, precision and length of sequences."""
    sizes = " ".join(
        f"{key}={value:g}" for key, value in sorted(case.sizes.items()) if key != "positions"
    )
    return f"{case.architecture} {sizes}".strip()


def load(path: Path | None = None) -> Folds:
    """Reads folds.

    Args:
        path: of a .json file; None: those that come with Slipstream.

    Raises:
        ConfigError: it cannot be read.
    """
    path = path or Path(str(resources.files("slipstream.forecast") / "data" / "fit.json"))
    try:
        return TypeAdapter(Folds).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read as fits: {error}") from error


def save(folds: Folds, path: Path) -> None:
    """Writes folds as JSON, a line for each.

    Args:
        folds: to write.
        path: of the file.
    """
    content: dict[str, Any] = TypeAdapter(Folds).dump_python(folds, mode="json")
    without = content.pop("without")
    head = [f"{json.dumps(key)}: {json.dumps(_short(value))}" for key, value in content.items()]
    lines = [f"{json.dumps(key)}: {json.dumps(_short(value))}" for key, value in without.items()]
    body = ",\n".join([*head, '"without": {\n' + ",\n".join(lines) + "\n}"])
    path.write_text("{\n" + body + "\n}\n", encoding="utf-8")


def _short(value: Any) -> Any:
    """Numbers with four digits, however deep they are."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.4g}"))
