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
from importlib import resources
from pathlib import Path

import tomli
from pydantic import TypeAdapter, ValidationError

from slipstream.errors import ConfigError
from slipstream.forecast.search.plan import Interval
from slipstream.forecast.work.workload import OperatorKind, Workload

COVERAGE = 0.8


@dataclass(frozen=True, slots=True)
class Bounds:
    """Factors between which measured over forecast lies in eight of ten cases.

    Args:
        low: one in ten lies below.
        high: one in ten lies above.
    """

    low: float
    high: float

    def around(self, value: float) -> Interval:
        """Returns a forecast with its interval."""
        return Interval(value, value * self.low, value * self.high)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Quantiles of measured over forecast.

    Args:
        low: factors of seconds by group; "" stands for all others.
        high: factors of seconds by group; "" stands for all others.
        efficiency: of throughput per device, as a share of one device's own.
        memory: of the peak on a device.
    """

    low: Mapping[str, float]
    high: Mapping[str, float]
    efficiency: Bounds = Bounds(0.8, 1.1)
    memory: Bounds = Bounds(0.9, 1.1)

    def of_efficiency(self, value: float, devices: int) -> Interval:
        """Returns an efficiency with its interval: one device's is 1, and no more is reached.

        Args:
            value: the forecast.
            devices: that work.
        """
        if devices == 1:
            return Interval(value, value, value)
        wide = self.efficiency.around(value)
        return Interval(value, wide.low, max(value, min(1.0, wide.high)))

    def around(self, value: float, group: str = "") -> Interval:
        """Returns seconds with their interval.

        Args:
            value: the forecast.
            group: that it is of.
        """
        low = self.low.get(group, self.low[""])
        high = self.high.get(group, self.high[""])
        return Interval(value, value * low, value * high)


def group_of(workload: Workload) -> str:
    """Returns the kind of model that a workload is of: "language", "encoder", "image" or "tables".

    Args:
        workload: of any micro-batch.
    """
    fills = [op.products[0].fill for op in workload.operators if op.kind is OperatorKind.ATTENTION]
    if fills:
        return "language" if min(fills) < 1 else "encoder"
    if any(op.kind is OperatorKind.CONVOLUTION for op in workload.operators):
        return "image"
    return "tables" if any(op.kind is OperatorKind.GATHER for op in workload.operators) else ""


def quantiles(ratios: Sequence[float], coverage: float = COVERAGE) -> tuple[float, float]:
    """Returns the factors between which a share of ratios lies, and as many a new one.

    Args:
        ratios: measured over forecast, of rows that were left out.
        coverage: of the interval, 0 to 1.
    """
    logs = sorted(math.log(ratio) for ratio in ratios)
    # Rounded, as (1 - 0.8) / 2 * 20 is a little less than 2.
    beyond = round((1 - coverage) / 2 * (len(logs) + 1), 9)
    low = max(1, math.floor(beyond))
    return math.exp(logs[low - 1]), math.exp(logs[len(logs) - low])


def load(path: Path | None = None) -> Intervals:
    """Reads quantiles.

    Args:
        path: of a .toml file as `save` writes it; None: the one that comes with Slipstream.

    Raises:
        ConfigError: it cannot be read.
    """
    path = path or Path(str(resources.files("slipstream.forecast") / "data" / "intervals.toml"))
    try:
        content = tomli.loads(path.read_text(encoding="utf-8"))
        return TypeAdapter(Intervals).validate_python(content)
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read as intervals: {error}") from error


def save(intervals: Intervals, path: Path) -> None:
    """Writes quantiles as a .toml file.

    Args:
        intervals: to write.
        path: of the file.
    """
    lines = [
        "# Measured over forecast: a tenth of rows left out lies below low, a tenth above high.",
        "# [low] and [high] are of seconds, by what a model is; the others are of all.",
    ]
    for name, table in (("low", intervals.low), ("high", intervals.high)):
        lines += ["", f"[{name}]", *(f'"{key}" = {table[key]:.3f}' for key in sorted(table))]
    for name, bounds in (("efficiency", intervals.efficiency), ("memory", intervals.memory)):
        lines += ["", f"[{name}]", f"low = {bounds.low:.3f}", f"high = {bounds.high:.3f}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
