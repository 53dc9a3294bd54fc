"""What values a graph computes on sample inputs: their ranges, by four methods.

The graph is run by ONNX Runtime with every value that is asked for as an output, once for the least
and greatest values and once more for histograms between them.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.engines.onnxruntime import ALL_CORES, graph_session
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.images.pixels import range_of
from slipstream.infer.rewrites.expand import expand

Method = Literal["min-max", "percentile", "entropy", "error"]
METHODS: tuple[Method, ...] = ("min-max", "percentile", "entropy", "error")
BINS = 2048
PERCENTILE = 99.99
MOST_KEPT = 2**30  # bytes
LEAST_BIN = 2.0**-20  # of the largest value: float32 tells eight apart in it


@dataclass
class Histogram:
    """How often values fell into each of BINS equal bins from low to high. The range that is known
    beforehand is not found. Values that were once infinite, or no number, have none: bytes could
    not stand for them."""

    low: float = np.inf
    high: float = -np.inf
    is_known: bool = False
    is_finite: bool = True
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    samples: int = 0
    sums: Array = field(default_factory=lambda: np.zeros(1))  # of the samples' means per channel

    def widen(self, values: Array) -> None:
        """Make room for these values, of one sample."""
        self.is_finite = self.is_finite and bool(np.isfinite(values).all())
        if not self.is_finite:
            return
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        axes = (0, 2, 3) if values.ndim == 4 else tuple(range(values.ndim - 1))
        self.sums = self.sums + values.mean(axis=axes, dtype=np.float64)
        self.samples += 1

    def count(self, values: Array) -> None:
        """Count values that it has room for."""
        if self.is_finite:
            # The edges of bins are of the values' dtype, and so many of 16 bits are not distinct.
            values = values.astype(np.float32) if values.itemsize < 4 else values
            self.counts += np.histogram(values, BINS, (self.low, self.top))[0]

    def range(self, method: Method) -> tuple[float, float]:
        """The range that bytes should cover."""
        if self.is_known or method == "min-max" or self.high <= self.low:
            return self.low, self.high
        return _RANGES[method](self)

    @property
    def means(self) -> Array:
        """Of each channel: the second dimension of images, the last one of others."""
        return self.sums / max(self.samples, 1)

    @property
    def edges(self) -> Array:
        """The BINS + 1 edges of the bins."""
        return np.linspace(self.low, self.top, BINS + 1)

    @property
    def top(self) -> float:
        """Where the last bin ends: `high`, or so far above `low` that bins differ as float32."""
        size = max(abs(self.low), abs(self.high))
        return max(self.high, self.low + BINS * LEAST_BIN * max(size, LEAST_BIN))


def observe(
    graph: Graph, samples: Iterable[Mapping[str, Array]], names: Iterable[str]
) -> dict[str, Histogram]:
    """Histograms of the values `names` over the samples, but for those that were once infinite or
    no number; UsageError where there is no sample. A sample is taken when the one before it has
    been run."""
    wanted = list(names)
    run = _runner(graph, wanted)
    found = {name: Histogram() for name in wanted} | _known(graph, wanted)
    kept: list[list[Array]] = []  # of the first samples: running them again takes longer
    seen: list[Mapping[str, Array]] = []
    size = 0
    for sample in samples:
        seen.append(sample)
        results = run(sample)
        for name, values in zip(wanted, results, strict=True):
            found[name].widen(values)
        size += sum(values.nbytes for values in results)
        kept += [results] if size <= MOST_KEPT else []
    if not seen:
        raise UsageError("quantisation needs sample inputs, and there is none")
    for number, sample in enumerate(seen):
        results = kept[number] if number < len(kept) else run(sample)
        for name, values in zip(wanted, results, strict=True):
            found[name].count(values)
    return {name: histogram for name, histogram in found.items() if histogram.is_finite}


def _known(graph: Graph, names: Sequence[str]) -> dict[str, Histogram]:
    """Of values whose ranges follow from the graph."""
    nodes = (node for node in graph.nodes if node.op == "Pixels" and node.output in names)
    return {node.output: Histogram(*range_of(node), is_known=True) for node in nodes}


def _runner(graph: Graph, names: Sequence[str]) -> Callable[[Mapping[str, Array]], list[Array]]:
    inner = [name for name in names if name not in graph.inputs]
    if not inner:
        return lambda sample: [sample[name] for name in names]
    whole = expand(graph)
    whole.outputs = inner
    session = graph_session(whole, ALL_CORES)

    def run(sample: Mapping[str, Array]) -> list[Array]:
        given = session.run(sample)
        return [sample[name] if name in graph.inputs else given[name] for name in names]

    return run


def _percentile(histogram: Histogram) -> tuple[float, float]:
    share = np.cumsum(histogram.counts) / histogram.counts.sum()
    rest = (1 - PERCENTILE / 100) / 2
    edges = histogram.edges
    low = edges[np.searchsorted(share, rest)]
    high = edges[min(np.searchsorted(share, 1 - rest) + 1, BINS)]
    return float(low), float(high)


def _candidates(histogram: Histogram) -> list[tuple[float, float]]:
    """Ranges that leave out a little more at the ends each, down to a fifth of the whole."""
    shares = np.linspace(1.0, 0.2, 65)
    return [(histogram.low * share, histogram.high * share) for share in shares]


def _entropy(histogram: Histogram) -> tuple[float, float]:
    """The range whose 256 levels keep the distribution's shape best (Migacz, GTC 2017: KL).

    Zeros do not count, as every range has them exactly: half of what a ReLU gives would outweigh
    the rest.
    """
    centres = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    counts = histogram.counts.copy()
    zero = int(np.abs(centres).argmin())
    counts[zero] = min(counts[max(zero - 1, 0)], counts[min(zero + 1, BINS - 1)])

    def divergence(low: float, high: float) -> float:
        inside = np.clip(centres, low, high)
        real = np.histogram(inside, BINS, (low, high), weights=counts)[0]
        levels = real.reshape(256, -1)
        filled = levels > 0
        mean = levels.sum(1) / np.maximum(filled.sum(1), 1)
        coarse = (filled * mean[:, None]).ravel()
        if counts[(centres >= low) & (centres <= high)].sum() == 0:
            return np.inf
        p, q = real / real.sum(), coarse / max(coarse.sum(), 1)
        used = (p > 0) & (q > 0)
        return float((p[used] * np.log(p[used] / q[used])).sum() + p[~used].sum())

    return min(_candidates(histogram), key=lambda ends: divergence(*ends))


def _error(histogram: Histogram) -> tuple[float, float]:
    """The range of the least mean squared error of rounding and cutting."""
    centres = (histogram.edges[:-1] + histogram.edges[1:]) / 2

    def loss(low: float, high: float) -> float:
        step = (max(high, 0) - min(low, 0)) / 255
        cut = centres - np.clip(centres, low, high)
        inside = (cut == 0) * step**2 / 12
        return float((histogram.counts * (cut**2 + inside)).sum())

    return min(_candidates(histogram), key=lambda ends: loss(*ends))


_RANGES: dict[str, Callable[[Histogram], tuple[float, float]]] = {
    "percentile": _percentile,
    "entropy": _entropy,
    "error": _error,
}
