"""Prediction intervals of forecasts, from errors on held-out measurements.

The method is split conformal prediction. A source is a publisher of measurements. The quantiles of
log(measured / forecast) on held-out sources are valid for a new source that resembles the held-out
sources.

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

from slipstream.errors import ConfigError, reason_of
from slipstream.forecast.observed.correction import PriorWidths, width_of
from slipstream.forecast.search.plan import Interval
from slipstream.forecast.work.workload import OperatorKind, Workload

# Share of measurements that an interval shall contain. It defines the reported intervals, and was
# chosen by hand.
COVERAGE = 0.8


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds between which the ratio measured / forecast lies in eight of ten cases.

    Args:
        low: Lower bound; the ratio is lower in one case in ten.
        high: Upper bound; the ratio is higher in one case in ten.
    """

    low: float
    high: float

    def around(self, value: float) -> Interval:
        """Return a forecast value with its interval."""
        return Interval(value, value * self.low, value * self.high)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Factors from a forecast to its interval: quantiles of the ratio measured / forecast.

    Args:
        low: Lower factors for the step time, by group of models (see `group_of`); "" is the default
            group.
        high: Upper factors for the step time, by group of models; "" is the default group.
        efficiency: Factors for the scaling efficiency (default 0.8 to 1.1).
        memory: Factors for the peak memory of a device (default 0.9 to 1.1).
    """

    low: Mapping[str, float]
    high: Mapping[str, float]
    efficiency: Bounds = Bounds(0.8, 1.1)
    memory: Bounds = Bounds(0.9, 1.1)

    def of_efficiency(self, value: float, devices: int) -> Interval:
        """Return an efficiency with its interval.

        If there is only one device, both bounds equal the efficiency. The upper bound is at most 1.

        Args:
            value: Forecast efficiency.
            devices: Number of devices.
        """
        if devices == 1:
            return Interval(value, value, value)
        wide = self.efficiency.around(value)
        return Interval(value, wide.low, max(value, min(1.0, wide.high)))

    def around(self, value: float, group: str = "") -> Interval:
        """Return a step time with its interval.

        Args:
            value: Forecast step time in seconds.
            group: Group of the model, from `group_of` (default "": the default group).
        """
        low = self.low.get(group, self.low[""])
        high = self.high.get(group, self.high[""])
        return Interval(value, value * low, value * high)

    def widths(self, group: str = "") -> PriorWidths:
        """Return how far forecasts of a group of models are off, as a prior for corrections.

        Args:
            group: Group of the model, from `group_of` (default "": the default group).
        """
        low, high = self.low.get(group, self.low[""]), self.high.get(group, self.high[""])
        setup = width_of(self.efficiency.low, self.efficiency.high)
        return PriorWidths(width_of(low, high), setup)


def group_of(workload: Workload) -> str:
    """Return the group of a model: "language", "encoder", "image", "tables" or "".

    Models in "language" have causal attention, and models in "encoder" have attention that is not
    causal. Among models without attention, those in "image" have convolutions, and those in
    "tables" have embedding tables; the rest is in "".

    Args:
        workload: Workload of the model at any micro-batch size.
    """
    fills = [op.products[0].fill for op in workload.operators if op.kind is OperatorKind.ATTENTION]
    if fills:
        return "language" if min(fills) < 1 else "encoder"
    if any(op.kind is OperatorKind.CONVOLUTION for op in workload.operators):
        return "image"
    return "tables" if any(op.kind is OperatorKind.GATHER for op in workload.operators) else ""


def quantiles(ratios: Sequence[float], coverage: float = COVERAGE) -> tuple[float, float]:
    """Return two factors between which a given share of the ratios lies: the lower and the upper.

    A ratio from a new source lies between the two factors with a probability that equals the share.

    Args:
        ratios: Values of measured / forecast on held-out measurements.
        coverage: Share of the ratios between the factors, 0 to 1 (default 0.8).
    """
    logs = sorted(math.log(ratio) for ratio in ratios)
    # The product is rounded first, because in floating point (1 - 0.8) / 2 * 20 is slightly less
    # than 2.
    beyond = round((1 - coverage) / 2 * (len(logs) + 1), 9)
    low = max(1, math.floor(beyond))
    return math.exp(logs[low - 1]), math.exp(logs[len(logs) - low])


def load(path: Path | None = None) -> Intervals:
    """Read intervals from a file.

    Args:
        path: Path of a .toml file that `save` wrote (default None: the file shipped with
            Slipstream).

    Raises:
        ConfigError: The file cannot be read.
    """
    path = path or Path(str(resources.files("slipstream.forecast") / "data" / "intervals.toml"))
    try:
        content = tomli.loads(path.read_text(encoding="utf-8"))
        return TypeAdapter(Intervals).validate_python(content)
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read as intervals: {reason_of(error)}") from error


def save(intervals: Intervals, path: Path) -> None:
    """Write intervals to a .toml file.

    Args:
        intervals: Intervals to write.
        path: Path of the file.
    """
    lines = [
        "# Measured over forecast: a tenth of the left-out rows is below low, a tenth above high.",
        "# [low] and [high] apply to seconds, by group of models; the others apply to all models.",
    ]
    for name, table in (("low", intervals.low), ("high", intervals.high)):
        lines += ["", f"[{name}]", *(f'"{key}" = {table[key]:.3f}' for key in sorted(table))]
    for name, bounds in (("efficiency", intervals.efficiency), ("memory", intervals.memory)):
        lines += ["", f"[{name}]", f"low = {bounds.low:.3f}", f"high = {bounds.high:.3f}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
