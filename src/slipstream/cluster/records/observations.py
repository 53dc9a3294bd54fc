"""The file of observations: what runs with a plan really took, for the next forecasts.

`slipstream.forecast.observed.file` describes a line of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.cluster.records.lock import locked


def add_observation(path: Path, observation: Mapping[str, Any]) -> None:
    """Add an observation to a file in one step; that of the same run is replaced.

    Args:
        path: Path of the file, which is made if it is missing.
        observation: Fields of the observation.

    Raises:
        OSError: the file cannot be written.
    """
    with locked(path.with_suffix(".lock")):
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        kept = [line for line in before.split("\n")[:-1] if not _is_of(line, observation["run"])]
        temporary = path.with_suffix(".new")
        temporary.write_text("\n".join([*kept, json.dumps(observation)]) + "\n", encoding="utf-8")
        temporary.replace(path)


def _is_of(line: str, run: str) -> bool:
    try:
        return json.loads(line)["run"] == run
    except (ValueError, TypeError, KeyError):
        return False  # the forecast names this line and what to do
