"""Performance targets of inference: the fastest competitor's time divided by Slipstream's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.bench.infer.contenders import CONTENDERS, OURS_BEST, OURS_FP32
from slipstream.bench.infer.job import InferTiming
from slipstream.bench.infer.measure import FAITHFUL_DB, ModelResult

# Performance targets: smallest ratio of a single model, and smallest geometric mean of all models.
FP32_LEAST, FP32_MEAN = 0.98, 1.05
BEST_LEAST, BEST_MEAN = 1.0, 1.25
BEST_LEAST_OF: Mapping[str, float] = {  # models with their own targets
    "efficientnet_b0": 1.5,
    "detector": 1.5,
    "mobilenetv3_large": 1.15,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class InferBar:
    """Comparison of Slipstream with competing engines on one model.

    Args:
        model: Name of the model.
        peers: Timings of the competing engines, at least one.
        ours: Timing of Slipstream.
        at_least: Smallest ratio that meets the performance target.
    """

    model: str
    peers: tuple[InferTiming, ...]
    ours: InferTiming
    at_least: float

    @property
    def peer(self) -> InferTiming:
        """Timing of the competing engine with the smallest median time."""
        return min(self.peers, key=lambda peer: peer.median)

    @property
    def ratio(self) -> float:
        """Median time of the fastest competitor divided by Slipstream's; higher is better."""
        return self.peer.median / self.ours.median

    @property
    def quiet_ratio(self) -> float:
        """Like `ratio`, but of the engines' best turns, which other programs disturbed least."""
        return min(peer.best for peer in self.peers) / self.ours.best

    @property
    def is_accurate(self) -> bool:
        """Whether Slipstream is as accurate as the fastest competitor or as float32."""
        return self.ours.snr_db >= min(self.peer.snr_db, FAITHFUL_DB)

    @property
    def holds(self) -> bool:
        """Whether Slipstream meets the performance target with sufficient accuracy."""
        return self.ratio >= self.at_least and self.is_accurate


def fp32_bar(result: ModelResult) -> InferBar | None:
    """Return the comparison in float32; None if Slipstream or all competitors are missing."""
    peers = [peer for peer in _peers(result) if CONTENDERS[peer.contender].precision == "fp32"]
    return _bar(result, peers, OURS_FP32, FP32_LEAST)


def best_bar(result: ModelResult) -> InferBar | None:
    """Return the comparison in any precision; None if Slipstream or all competitors are missing."""
    least = BEST_LEAST_OF.get(result.model, BEST_LEAST)
    return _bar(result, _peers(result), OURS_BEST, least)


def geometric_mean(bars: Sequence[InferBar | None], *, quiet: bool = False) -> float | None:
    """Return the geometric mean of the ratios; None if there is no ratio.

    Args:
        bars: Comparisons; None stands for a model without a comparison.
        quiet: Whether to use `InferBar.quiet_ratio` (default False: `InferBar.ratio`).
    """
    ratios = [bar.quiet_ratio if quiet else bar.ratio for bar in bars if bar is not None]
    return statistics.geometric_mean(ratios) if ratios else None


def _peers(result: ModelResult) -> list[InferTiming]:
    return [timing for timing in result.timings if not CONTENDERS[timing.contender].is_ours]


def _bar(
    result: ModelResult, peers: Sequence[InferTiming], name: str, at_least: float
) -> InferBar | None:
    ours = result.of(name)
    if not peers or ours is None:
        return None
    return InferBar(model=result.model, peers=tuple(peers), ours=ours, at_least=at_least)
