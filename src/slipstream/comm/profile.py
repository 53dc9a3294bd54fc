"""Profile: a file that carries the results of tuning over from one run to the next."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream import _core
from slipstream.comm.counters import stats
from slipstream.comm.tuner import Knob, Measured

_VERSION = 1
_NONE = -1

_log = logging.getLogger(__name__)


class Profile:
    """A file that rank 0 reads and writes, and whose values all ranks use.

    Args:
        path: Path of the file; None for no file. Either all ranks pass a path, or all pass None.
        group: Group whose allreduces are tuned.
    """

    def __init__(self, path: Path | None, group: _core.Group) -> None:
        self._path = path
        self._group = group

    def load(self, knobs: Sequence[Knob]) -> bool:
        """Set the knobs (tunable settings) to the values in rank 0's file.

        The call blocks until rank 0 has sent the values.

        Returns:
            Whether the profile had a value for at least one knob.
        """
        if self._path is None:
            return False
        stored = self._read() if self._group.rank() == 0 else {}
        values = np.array([stored.get(knob.name, _NONE) for knob in knobs], dtype=np.int64)
        self._group.broadcast(
            values.ctypes.data, len(values), _core.DType.INT64, 0, name="tuning profile"
        ).wait()
        for knob, value in zip(knobs, values.tolist(), strict=True):
            if value != _NONE:
                knob.set(value)
        return bool((values != _NONE).any())

    def save(self, knobs: Sequence[Knob], measured: Measured, news: Sequence[str]) -> None:
        """Write the current values to the file, on rank 0; warn if the file cannot be written."""
        if self._path is None or self._group.rank() != 0:
            return
        text = json.dumps(
            {
                "version": _VERSION,
                "dimensions": self._group.dimensions(),
                "choice": {knob.name: knob.value for knob in knobs},
                "streams": stats().streams,
                "step_seconds": measured.seconds,
                "waited_seconds": measured.waited,
                "why": list(news),
            },
            indent=2,
        )
        partial = self._path.with_name(self._path.name + ".partial")
        try:
            partial.write_text(text + "\n")
            partial.replace(self._path)
        except OSError as error:
            _log.warning(
                "the tuned values are not saved, because SLIPSTREAM_PROFILE=%s cannot be"
                " written: %s",
                self._path,
                error,
            )

    def _read(self) -> dict[str, int]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            content: dict[str, Any] = json.loads(self._path.read_text())
            stored = (content["version"], content["dimensions"])
            choice = {str(name): int(value) for name, value in content["choice"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning(
                "SLIPSTREAM_PROFILE=%s is not used, because it is no profile: %r", self._path, error
            )
            return {}
        current = (_VERSION, self._group.dimensions())
        if stored != current:
            _log.warning(
                "SLIPSTREAM_PROFILE=%s is not used, because its version and dimensions are %s;"
                " those of this run are %s",
                self._path,
                stored,
                current,
            )
            return {}
        return choice


def stored_streams(path: Path | None) -> int:
    """Return the number of connections per pair of ranks in a profile; 0 without a profile."""
    try:
        return int(json.loads(path.read_text())["streams"]) if path is not None else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # `Profile.load` warns about the file
