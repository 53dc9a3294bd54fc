"""Peak and tiles of products of matrices, from timed ones: the forecast's formula, turned round.

A product takes its FLOPs at the peak, and a moment for each tile that a processor begins and ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from slipstream.errors import UsageError
from slipstream.forecast.compute import SPLIT, TILE


@dataclass(frozen=True, slots=True)
class TimedProduct:
    """A product of (m, k) by (k, n), with many tiles for each processor.

    Args:
        m: rows.
        n: columns.
        k: what is summed over.
        seconds: that it took.
    """

    m: int
    n: int
    k: int
    seconds: float

    @property
    def flops(self) -> float:
        """A multiplication and an addition are two."""
        return 2.0 * self.m * self.n * self.k

    def waves(self, processors: int) -> float:
        """Returns how many tiles each of some processors computes."""
        tiles = math.ceil(self.m / TILE) * math.ceil(self.n / TILE)
        return max(1.0, tiles * max(1, self.k // SPLIT) / processors)


@dataclass(frozen=True, slots=True)
class Peak:
    """What products reach.

    Args:
        flops_per_second: where sums are long.
        tile: seconds in which a processor begins and ends a tile.
    """

    flops_per_second: float
    tile: float


def peak(short: TimedProduct, long: TimedProduct, processors: int) -> Peak:
    """Returns what makes two products take as long as they did.

    Args:
        short: with a short sum.
        long: with as many tiles and a longer sum.
        processors: that share tiles.

    Raises:
        UsageError: the longer sum took no longer.
    """
    if not long.seconds > short.seconds:
        raise UsageError(
            f"a product of sums of {long.k} took no longer than one of {short.k}: others use the"
            " device; calibrate again when nothing else runs"
        )
    rate = (long.flops - short.flops) / (long.seconds - short.seconds)
    tile = (short.seconds - short.flops / rate) / short.waves(processors)
    if tile < 0:
        return Peak(long.flops / long.seconds, 0.0)
    return Peak(rate, tile)


def share(timed: TimedProduct, reached: Peak, processors: int) -> float:
    """Returns what share of a peak a product reaches, beside its tiles; at most 1.

    Args:
        timed: any, as what a convolution computes.
        reached: by plain products.
        processors: that share tiles.
    """
    rest = timed.seconds - timed.waves(processors) * reached.tile
    alone = timed.flops / reached.flops_per_second
    return 1.0 if rest <= alone else alone / rest
