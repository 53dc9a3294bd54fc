"""Tuning during training: ranks measure steps, agree on times, and change values together.

After every few steps, a small allreduce finds the times of the slowest rank. All ranks use the
slowest rank's times, so they choose the same values (see tuner.py). The number of streams
(connections per pair of ranks) is tuned by the engine itself, within a step.
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

# Steps at the beginning that are not measured, while frameworks warm up. Chosen by hand.
FIRST_STEPS = 5
# Number of measured steps of a window; one step before them is not measured. Chosen in 1,000
# simulated searches with nothing to gain. If step times spread by 1 %, windows of 1, 3 and 5 steps
# make a false change in 1.9, 0 and 0 % of the searches, and a search takes 27, 45 and 63 steps. If
# they spread by 3 %, windows of 1, 3 and 5 steps make a false change in 30, 18 and 15 %.
WINDOW = 3
_URGENT = 1 << 20  # priority of the allreduce that exchanges the times
_KIB = 1 << 10
_LEAST_SEGMENT, _GRAIN = 16 * _KIB, 64  # in bytes: smallest segment; segments are multiples of 64

_log = logging.getLogger(__name__)


def segment_sizes(settings: Settings) -> list[int]:
    """Return the segment sizes in bytes to try: the configured size, and 1/2 and 1/4 of it.

    Sizes below `eager_bytes` or 16 KiB, and sizes that are no multiples of 64, are left out.
    """
    most = settings.segment_bytes
    least = max(_LEAST_SEGMENT, settings.eager_bytes)
    return [size for size in (most // 4, most // 2, most) if size >= least and size % _GRAIN == 0]


class Tuning:
    """Tuning of the allreduces of one group, and of further knobs (settings) of an adapter.

    All ranks of the group must construct `Tuning` with the same arguments and between the same two
    collectives of the group. The same holds for each call of step(). With a profile, the
    constructor blocks until rank 0 has sent the stored values.

    Args:
        group: Group whose allreduces are tuned.
        knobs: Further knobs of an adapter, the knob with the largest effect first; all ranks change
            a knob at the same step (default none).
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
        self._skipped = FIRST_STEPS  # steps that still have to be skipped
        # Clock and total wait in seconds at the end of the last step.
        self._last: tuple[float, float] | None = None
        self._agreed = np.zeros(2)
        self._agreement: _core.Handle | None = None
        if group.size() > 1 and self._profile.load(self._knobs):
            self._apply()

    @property
    def choice(self) -> dict[str, int]:
        """Value in use of each knob, by name."""
        return {knob.name: knob.value for knob in self._knobs}

    @property
    def news(self) -> Sequence[str]:
        """Sentences about all changes of values since the start, with their reasons."""
        return self._tuner.news

    @property
    def is_settled(self) -> bool:
        """Whether the search rests: no value is being tried."""
        return self._tuner.is_settled

    def step(self) -> None:
        """Measure the training step that ends here; change a value if the search asks for it.

        In some steps, the call blocks until the other ranks have sent their times.
        """
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
        if self._skipped > 0:
            self._skipped -= 1
        elif self._last is not None:
            self._steps.append(Measured(now - self._last[0], waited - self._last[1]))
        self._last = now, waited

    def _agree(self) -> None:
        self._agreed[:] = (
            statistics.median(step.seconds for step in self._steps),
            statistics.median(step.waited for step in self._steps),
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
        before, was_settled, num_news = self.choice, self.is_settled, len(self.news)
        self._tuner.take(measured)
        if self.choice != before:
            self._apply()
        for line in self.news[num_news:]:
            _log.info("tuning: %s", line)
        if self.is_settled and not was_settled:
            self._profile.save(self._knobs, measured, self.news)
        self._steps, self._skipped = [], 1

    def _apply(self) -> None:
        self._group.tune(
            direct_bytes=self._direct.value,
            doubling_bytes=self._doubling.value,
            segment_bytes=self._segment.value,
        )
