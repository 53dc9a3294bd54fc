"""Latency and rate of a link from timed all-reduces.

Source: Hockney 1994, "The communication challenge for MPP", doi 10.1016/S0167-8191(06)80021-9, for
the line; the coefficients are those of `slipstream.forecast.simulate.network`.
"""

# NumPy's arrays lose their types in sums and copies.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.errors import UsageError

# Samples change between rings and recursive doubling so often at most.
_MOST_PASSES = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A timed all-reduce.

    Args:
        ranks: that took part, at least 2.
        num_bytes: on each rank, above 0.
        seconds: that it took, above 0.
    """

    ranks: int
    num_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Line:
    """What a link of each rank does.

    Args:
        latency: seconds of one step of a collective.
        rate: bytes per second.
    """

    latency: float
    rate: float


def fit(samples: Sequence[Sample]) -> Line:
    """Returns the latency and the rate with the least squares of relative errors.

    A sample counts as a ring or as recursive doubling, whichever is sooner by the line that was
    found before, as the forecast chooses; this is repeated until none changes, or until no line
    that rises with size goes through them.

    Args:
        samples: of at least two sizes.

    Raises:
        UsageError: all samples have one size, or larger ones take no longer.
    """
    if len({sample.num_bytes for sample in samples}) < 2:
        sizes = sorted({f"{sample.num_bytes:,.0f}" for sample in samples}) or ["none"]
        raise UsageError(
            f"all-reduces of {', '.join(sizes)} bytes were timed; two sizes or more are needed"
        )
    ways = [_ring(sample) for sample in samples]
    line = _least_squares(ways, samples)
    if line is None:
        raise UsageError(
            "larger all-reduces took no longer than small ones: time larger ones, up to 64 MB"
        )
    for _ in range(_MOST_PASSES):
        before, ways = ways, [_sooner(sample, line) for sample in samples]
        better = None if ways == before else _least_squares(ways, samples)
        if better is None:
            break
        line = better
    return line


def _ring(sample: Sample) -> tuple[float, float]:
    """Steps and bytes of a rank in a reduce-scatter and an all-gather."""
    steps = 2 * (sample.ranks - 1)
    return steps, steps / sample.ranks * sample.num_bytes


def _sooner(sample: Sample, line: Line) -> tuple[float, float]:
    rounds = math.ceil(math.log2(sample.ranks))
    ways = (_ring(sample), (float(rounds), rounds * sample.num_bytes))
    return min(ways, key=lambda way: way[0] * line.latency + way[1] / line.rate)


def _least_squares(ways: Sequence[tuple[float, float]], samples: Sequence[Sample]) -> Line | None:
    """Return the line through steps and bytes, or None if it does not rise with the bytes.

    Latency is 0 where it would be below.
    """
    seconds = np.array([sample.seconds for sample in samples])
    table = np.array(ways) / seconds[:, None]
    wanted = np.ones(len(samples))
    latency, per_byte = np.linalg.lstsq(table, wanted, rcond=None)[0].tolist()
    if latency < 0:
        latency, per_byte = 0.0, float(table[:, 1].sum() / (table[:, 1] ** 2).sum())
    return Line(latency, 1 / per_byte) if per_byte > 0 else None
