"""Peak of products of matrices, from timed ones: the forecast's formula, turned round.

A product takes its FLOPs at the peak, and as long as if its sum were somewhat longer than it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.errors import UsageError


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


@dataclass(frozen=True, slots=True)
class Peak:
    """What products reach.

    Args:
        flops_per_second: where sums are long.
        half_sum: length of a sum at which half of that is reached.
    """

    flops_per_second: float
    half_sum: float


def peak(short: TimedProduct, long: TimedProduct) -> Peak:
    """Returns what makes two products take as long as they did.

    Args:
        short: with a short sum.
        long: with as many rows and columns and a longer sum.

    Raises:
        UsageError: the longer sum took no longer.
    """
    if not long.seconds > short.seconds:
        raise UsageError(
            f"a product of sums of {long.k} took no longer than one of {short.k}: others use the"
            " device; calibrate again when nothing else runs"
        )
    rate = (long.flops - short.flops) / (long.seconds - short.seconds)
    half_sum = short.k * (short.seconds * rate / short.flops - 1)
    if half_sum < 0:
        return Peak(long.flops / long.seconds, 0.0)
    return Peak(rate, half_sum)


def share(timed: TimedProduct, reached: Peak) -> float:
    """Returns what share a product reaches of what a plain one of its sum does; at most 1.

    Args:
        timed: any, as what a convolution computes.
        reached: by plain products.
    """
    plain = timed.flops / reached.flops_per_second * (1 + reached.half_sum / timed.k)
    return min(1.0, plain / timed.seconds)
