"""Targets of inference, and whether they are met: best peer's time divided by ours."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.bench.infer.contenders import CONTENDERS, OURS_BEST, OURS_FP32
from slipstream.bench.infer.job import InferTiming
from slipstream.bench.infer.measure import FAITHFUL_DB, ModelResult

FP32_LEAST, FP32_MEAN = 0.98, 1.05
BEST_LEAST, BEST_MEAN = 1.0, 1.25
BEST_LEAST_OF: Mapping[str, float] = {
    "efficientnet_b0": 1.5,
    "detector": 1.5,
    "mobilenetv3_large": 1.15,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class InferBar:
    """One model beside its best peer.

    Args:
        model: its name.
        peers: all that it is compared with, at least one.
        ours: Timing of ours.
        at_least: the peer's time divided by ours has to be this.
    """

    model: str
    peers: tuple[InferTiming, ...]
    ours: InferTiming
    at_least: float

    @property
    def peer(self) -> InferTiming:
        """The fastest peer, by its median."""
        return min(self.peers, key=lambda each: each.median)

    @property
    def ratio(self) -> float:
        """The peer's time divided by ours; more is better."""
        return self.peer.median / self.ours.median

    @property
    def quiet_ratio(self) -> float:
        """The same of the best turns: nearer to the truth where something else ran as well."""
        return min(each.best for each in self.peers) / self.ours.best

    @property
    def is_accurate(self) -> bool:
        """Whether ours has the peer's signal to noise, or nearly that of float32."""
        return self.ours.snr_db >= min(self.peer.snr_db, FAITHFUL_DB)

    @property
    def holds(self) -> bool:
        """Whether ours is as fast and as accurate as is promised."""
        return self.ratio >= self.at_least and self.is_accurate


def fp32_bar(result: ModelResult) -> InferBar | None:
    """Return the target among contenders in float32; None if one side is missing."""
    peers = [
        each
        for each in result.timed
        if not CONTENDERS[each.contender].is_ours and CONTENDERS[each.contender].precision == "fp32"
    ]
    return _bar(result, peers, OURS_FP32, FP32_LEAST)


def best_bar(result: ModelResult) -> InferBar | None:
    """Return the target among contenders of any precision; None if one side is missing."""
    peers = [each for each in result.timed if not CONTENDERS[each.contender].is_ours]
    return _bar(result, peers, OURS_BEST, BEST_LEAST_OF.get(result.model, BEST_LEAST))


def geometric_mean(bars: Sequence[InferBar | None], *, quiet: bool = False) -> float | None:
    """Return the mean of the ratios, or of those of the best turns; None without any."""
    ratios = [bar.quiet_ratio if quiet else bar.ratio for bar in bars if bar is not None]
    return statistics.geometric_mean(ratios) if ratios else None


def _bar(
    result: ModelResult, peers: Sequence[InferTiming], ours: str, at_least: float
) -> InferBar | None:
    own = result.of(ours)
    if not peers or own is None:
        return None
    return InferBar(model=result.model, peers=tuple(peers), ours=own, at_least=at_least)
