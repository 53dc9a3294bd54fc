"""The file of observations, to which `slipstream run --plan` adds what runs really took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from slipstream.errors import ConfigError, reason_of
from slipstream.forecast.observed.kind import RunKind, RunSetup

VERSION = 1

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObservation:
    """What one run really took, beside its forecast.

    Args:
        version: Version of the format.
        run: Name and number of the run.
        ended_at: Time of its end in seconds since 1970.
        model: Name of the model in the forecast.
        hardware: Name of the hosts in the forecast.
        kind: Kind of the training.
        setup: Setup of the training.
        forecast_seconds: Forecast duration of a step in seconds, without corrections.
        measured_seconds: Measured duration of a step in seconds.
        source: Origin of the measurement: "progress" for reports of the job, "attempt" for the time
            from the start of its ranks to their end.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    version: Literal[1]
    run: str
    ended_at: float
    model: str
    hardware: str
    kind: RunKind
    setup: RunSetup
    forecast_seconds: _Seconds
    measured_seconds: _Seconds
    source: Literal["progress", "attempt"]


def read_observations(path: Path) -> list[RunObservation]:
    """Return the observations in a file, the newest of each run.

    Args:
        path: Path of the file; it need not exist. A last line without an end is left out.

    Raises:
        ConfigError: The file cannot be read, or a line is no observation.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the observations {path} cannot be read: {reason_of(error)}; move the file away, or"
            " call the forecast with --no-observations"
        ) from error
    by_run = {found.run: found for found in _parsed(text.split("\n")[:-1], path)}
    return list(by_run.values())


def _parsed(lines: Iterable[str], path: Path) -> Iterable[RunObservation]:
    adapter = TypeAdapter(RunObservation)
    for number, line in enumerate(lines, 1):
        try:
            yield adapter.validate_json(line)
        except ValidationError as error:
            raise ConfigError(
                f"{path}:{number} is no observation of version {VERSION}: {reason_of(error)};"
                " remove this line, or call the forecast with --no-observations"
            ) from error
