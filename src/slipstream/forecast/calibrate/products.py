"""Peak rate of matrix products, computed from timed products with the forecast's formula.

The formula is seconds = FLOPs / peak rate * (1 + half_sum / k). A product thus reaches half of the
peak rate if its summed dimension has the length k = half_sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.errors import UsageError


@dataclass(frozen=True, slots=True)
class TimedProduct:
    """A timed product of an (m, k) matrix and a (k, n) matrix.

    The matrices are so large that each processor computes many tiles of the result.

    Args:
        m: Number of rows.
        n: Number of columns.
        k: Length of the summed dimension.
        seconds: Duration in seconds.
    """

    m: int
    n: int
    k: int
    seconds: float

    @property
    def flops(self) -> float:
        """Number of floating-point operations; a multiplication and an addition count as two."""
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class ProductPeak:
    """The peak rate of matrix products.

    Args:
        flops_per_second: Rate in FLOP/s of products with a long summed dimension.
        half_sum: Length of the summed dimension at which a product reaches half of
            `flops_per_second`.
    """

    flops_per_second: float
    half_sum: float


def peak(short: TimedProduct, long: TimedProduct) -> ProductPeak:
    """Return the peak rate that explains the times of two products.

    Args:
        short: Product with a short summed dimension.
        long: Product with the same numbers of rows and columns and a longer summed dimension.

    Raises:
        UsageError: The product with the longer summed dimension did not take longer.
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
    """Return the rate of a product, relative to a plain matrix product; at most 1.

    The summed dimensions of both products have the same length.

    Args:
        timed: Any product, such as the product that a convolution computes.
        reached: Peak rate of plain matrix products.
    """
    plain = timed.flops / reached.flops_per_second * (1 + reached.half_sum / timed.k)
    return min(1.0, plain / timed.seconds)
