"""Peak rate of matrix products, computed from timed ones by inverting the forecast's formula.

By that formula, a product takes as long as one with a somewhat longer sum takes at the peak rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.errors import UsageError


@dataclass(frozen=True, slots=True)
class TimedProduct:
    """A product of (m, k) by (k, n), with many tiles for each processor.

    Args:
        m: Number of rows.
        n: Number of columns.
        k: Length of the sums.
        seconds: Duration in seconds.
    """

    m: int
    n: int
    k: int
    seconds: float

    @property
    def flops(self) -> float:
        """Number of operations; a multiplication and an addition count as two."""
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class ProductPeak:
    """The rate that matrix products reach.

    Args:
        flops_per_second: Rate of products with long sums.
        half_sum: Sum length at which a product reaches half of that rate.
    """

    flops_per_second: float
    half_sum: float


def peak(short: TimedProduct, long: TimedProduct) -> ProductPeak:
    """Return the peak that explains the times of two products.

    Args:
        short: Product with a short sum.
        long: Product with the same rows and columns and a longer sum.

    Raises:
        UsageError: The longer sum did not take longer.
    """
    if not long.seconds > short.seconds:
        raise UsageError(
            f"a product with sums of length {long.k} took no longer than one of {short.k}, so other"
            " programs use the device; calibrate again when nothing else runs"
        )
    rate = (long.flops - short.flops) / (long.seconds - short.seconds)
    half_sum = short.k * (short.seconds * rate / short.flops - 1)
    if half_sum < 0:
        return ProductPeak(long.flops / long.seconds, 0.0)
    return ProductPeak(rate, half_sum)


def share(timed: TimedProduct, reached: ProductPeak) -> float:
    """Return the rate of a product over the rate of a plain one with equal sums, at most 1.

    Args:
        timed: Any product, such as one that a convolution computes.
        reached: Peak of plain products.
    """
    plain = timed.flops / reached.flops_per_second * (1 + reached.half_sum / timed.k)
    return min(1.0, plain / timed.seconds)
