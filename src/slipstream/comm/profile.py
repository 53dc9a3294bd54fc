"""What tuning has found, kept in a file from one run to the next."""

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
    """A file of rank 0, whose values all ranks take over.

    Args:
        path: Path of the file, or None for no file; all ranks must agree in that.
        group: Group whose allreduces are tuned.
    """

    def __init__(self, path: Path | None, group: _core.Group) -> None:
        self._path = path
        self._group = group

    def load(self, knobs: Sequence[Knob]) -> bool:
        """Set the knobs to what is kept; the same on all ranks, and block until all are there.

        Returns:
            Whether anything was.
        """
        if self._path is None:
            return False
        kept = self._read() if self._group.rank() == 0 else {}
        values = np.array([kept.get(knob.name, _NONE) for knob in knobs], dtype=np.int64)
        self._group.broadcast(
            values.ctypes.data, len(values), _core.DType.INT64, 0, name="tuning profile"
        ).wait()
        for knob, value in zip(knobs, values.tolist(), strict=True):
            if value != _NONE:
                knob.set(value)
        return bool((values != _NONE).any())

    def save(self, knobs: Sequence[Knob], measured: Measured, news: Sequence[str]) -> None:
        """Keep what is in use; only rank 0 does. A file that cannot be written is warned about."""
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
            _log.warning("SLIPSTREAM_PROFILE: %s cannot be written: %s", self._path, error)

    def _read(self) -> dict[str, int]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            kept: dict[str, Any] = json.loads(self._path.read_text())
            place = (kept["version"], kept["dimensions"])
            choice = {str(name): int(value) for name, value in kept["choice"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("SLIPSTREAM_PROFILE: %s is no profile: %r", self._path, error)
            return {}
        here = (_VERSION, self._group.dimensions())
        if place != here:
            _log.warning(
                "SLIPSTREAM_PROFILE: %s is not used: its version and dimensions are %s, here %s",
                self._path,
                place,
                here,
            )
            return {}
        return choice


def kept_streams(path: Path | None) -> int:
    """Return how many streams a profile on this host names, 0 where there is none."""
    try:
        return int(json.loads(path.read_text())["streams"]) if path is not None else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # said by whoever reads all of it
