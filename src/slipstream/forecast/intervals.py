"""Intervals around forecasts, from errors on measurements that were not fitted on.

Split conformal prediction: quantiles of the logarithms of measured over forecast, met where a
source was left out, hold for a new one as far as it is like those.

Source: Vovk, Gammerman, Shafer 2005, "Algorithmic learning in a random world"; Lei et al. 2018,
arXiv 1604.04173.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.forecast.plan import Interval

COVERAGE = 0.8


@dataclass(frozen=True, slots=True)
class Intervals:
    """Quantiles of measured over forecast.

    Args:
        low: factors by group; "" stands for all others.
        high: factors by group; "" stands for all others.
    """

    low: Mapping[str, float]
    high: Mapping[str, float]

    def around(self, value: float, group: str = "") -> Interval:
        """Returns a forecast with its interval.

        Args:
            value: the forecast.
            group: that it is of.
        """
        low = self.low.get(group, self.low[""])
        high = self.high.get(group, self.high[""])
        return Interval(value, value * low, value * high)


def quantiles(ratios: Sequence[float], coverage: float = COVERAGE) -> tuple[float, float]:
    """Returns the factors between which a share of ratios lies, and as many a new one.

    Args:
        ratios: measured over forecast, of rows that were left out.
        coverage: of the interval, 0 to 1.
    """
    logs = sorted(math.log(ratio) for ratio in ratios)
    beyond = (1 - coverage) / 2
    return math.exp(_at(logs, beyond, math.floor)), math.exp(_at(logs, 1 - beyond, math.ceil))


def _at(logs: Sequence[float], share: float, rounded: object) -> float:
    position = share * (len(logs) + 1)
    index = math.floor(position) if rounded is math.floor else math.ceil(position)
    return logs[min(len(logs), max(1, index)) - 1]
