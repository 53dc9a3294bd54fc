"""Tuning while training: steps are measured, ranks agree, and all switch at the same operation.

After some steps every rank passes how long they took; a small allreduce takes the slowest rank's,
on the side, so all are told the same and choose the same (see tuner.py). Streams are tuned by the
engine itself, in parts of a step.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Sequence

import numpy as np

from slipstream import _core
from slipstream.comm.counters import stats
from slipstream.comm.profile import Profile
from slipstream.comm.tuner import Knob, Measured, Tuner
from slipstream.settings import Settings

# Both were chosen by hand, not measured.
FIRST_STEPS = 5  # steps ignored at first, while frameworks warm up
WINDOW = 3  # steps measured at a time, after one that is not
_URGENT = 1 << 20
_KIB = 1 << 10
_LEAST_SEGMENT, _GRAIN = 16 * _KIB, 64

_log = logging.getLogger(__name__)


def segment_sizes(settings: Settings) -> list[int]:
    """Return what may be tried: the engine's, and smaller ones that hold small messages."""
    most = settings.segment_bytes
    least = max(_LEAST_SEGMENT, settings.eager_bytes)
    return [size for size in (most // 4, most // 2, most) if size >= least and size % _GRAIN == 0]


class Tuning:
    """Tuning of the allreduces of one group, and of further knobs of an adapter.

    All members make it alike, at the same place among the group's operations, and so they call
    `step`. Making it blocks where a profile is kept.

    Args:
        group: Group whose allreduces are tuned.
        knobs: Further knobs, the adapter's own, largest effect first; all ranks turn them at the
            same step.
        settings: Settings of this process (default: from the environment).
    """

    def __init__(
        self,
        group: _core.Group,
        knobs: Sequence[Knob] = (),
        settings: Settings | None = None,
    ) -> None:
        chosen = Settings.from_environment() if settings is None else settings
        self._group = group
        self._segment = Knob("segment bytes", segment_sizes(chosen), chosen.segment_bytes)
        sizes = [8 * _KIB, 32 * _KIB, 128 * _KIB, 512 * _KIB]
        self._doubling = Knob("recursive doubling up to bytes", sizes, 32 * _KIB)
        direct = 8 * _KIB if group.size() <= 8 else 0
        self._direct = Knob(
            "direct exchange up to bytes", [0, 2 * _KIB, 8 * _KIB, 32 * _KIB], direct
        )
        self._knobs = [*knobs, self._segment, self._doubling, self._direct]
        self._tuner = Tuner(self._knobs)
        self._freezes = chosen.deterministic or chosen.algorithm != "auto" or group.size() == 1
        self._profile = Profile(chosen.profile, group)
        self._steps: list[Measured] = []
        self._left_out = FIRST_STEPS
        self._at: tuple[float, float] | None = None
        self._agreed = np.zeros(2)
        self._agreement: _core.Handle | None = None
        if group.size() > 1 and self._profile.load(self._knobs):
            self._apply()

    @property
    def choice(self) -> dict[str, int]:
        """What is in use, by the name of the knob."""
        return {knob.name: knob.value for knob in self._knobs}

    @property
    def news(self) -> Sequence[str]:
        """What was changed so far, and why."""
        return self._tuner.news

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being tried."""
        return self._tuner.is_settled

    def step(self) -> None:
        """Note that a step is over; may switch. Blocks at most for what the others were told."""
        if self._freezes:
            return
        self._measure()
        if self._agreement is not None:
            self._agreement.wait()
            self._agreement = None
            self._take(Measured(float(self._agreed[0]), float(self._agreed[1])))
        elif len(self._steps) == WINDOW:
            self._agree()

    def _measure(self) -> None:
        now, waited = time.monotonic(), stats().blocked_seconds
        if self._left_out > 0:
            self._left_out -= 1
        elif self._at is not None:
            self._steps.append(Measured(now - self._at[0], waited - self._at[1]))
        self._at = now, waited

    def _agree(self) -> None:
        self._agreed[:] = (
            statistics.median(each.seconds for each in self._steps),
            statistics.median(each.waited for each in self._steps),
        )
        address = self._agreed.ctypes.data
        self._agreement = self._group.allreduce(
            address,
            address,
            2,
            _core.DType.FLOAT64,
            _core.ReduceOp.MAX,
            name="tuning",
            priority=_URGENT,
            algorithm=_core.Algorithm.RECURSIVE_DOUBLING,
        )

    def _take(self, measured: Measured) -> None:
        before, was_settled, known = self.choice, self.is_settled, len(self.news)
        self._tuner.take(measured)
        if self.choice != before:
            self._apply()
        for line in self.news[known:]:
            _log.info("tuning: %s", line)
        if self.is_settled and not was_settled:
            self._profile.save(self._knobs, measured, self.news)
        self._steps, self._left_out = [], 1

    def _apply(self) -> None:
        self._group.tune(
            direct_bytes=self._direct.value,
            doubling_bytes=self._doubling.value,
            segment_bytes=self._segment.value,
        )
