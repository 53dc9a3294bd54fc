"""Calibrate int8: observe values of a graph on sample inputs, and choose a range for each value.

ONNX Runtime runs the graph with the observed values as outputs, in two passes over the samples. The
first pass finds the least and the greatest element of each value. The second pass counts a
histogram between the least and the greatest element. A range is chosen from the histogram by one
of four methods.
"""

# NumPy's stubs leave the element types of arrays open.
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
BINS = 2048  # as in TensorRT (Migacz, "8-bit Inference with TensorRT", GTC 2017)
# Percent of the numbers inside the range of the method "percentile": one of the values that Wu et
# al. compare ("Integer Quantization for Deep Learning Inference", 2020).
PERCENTILE = 99.99
MOST_CACHED = 2**30  # bytes of first-pass results that are stored. Chosen by hand, not measured.
LEAST_BIN = 2.0**-20  # width as a share of the largest number: eight float32 numbers fit a bin


@dataclass
class Histogram:
    """Histogram of the elements of one value (a tensor of a graph), in BINS bins of equal width.

    Args:
        low: Least element in the samples so far.
        high: Greatest element in the samples so far.
        is_known: Whether the operator that computes the value limits it to a known range, so that
            no method chooses another range.
        is_finite: Whether all elements so far are finite; int8 cannot represent infinity or NaN.
        counts: Number of elements in each bin.
        samples: Number of samples that were added so far.
        sums: Sum over all samples, one for each channel, of the channel's mean in the sample.
    """

    low: float = np.inf
    high: float = -np.inf
    is_known: bool = False
    is_finite: bool = True
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    samples: int = 0
    sums: Array = field(default_factory=lambda: np.zeros(1))

    def widen(self, values: Array) -> None:
        """Extend the range from `low` to `high` so that it contains the elements of one sample."""
        self.is_finite = self.is_finite and bool(np.isfinite(values).all())
        if not self.is_finite:
            return
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        axes = (0, 2, 3) if values.ndim == 4 else tuple(range(values.ndim - 1))
        self.sums = self.sums + values.mean(axis=axes, dtype=np.float64)
        self.samples += 1

    def count(self, values: Array) -> None:
        """Add the elements of one sample to the bins; all must lie between `low` and `high`."""
        if self.is_finite:
            # Edges of bins get the dtype of the numbers; in 16 bits neighbours can be equal.
            values = values.astype(np.float32) if values.itemsize < 4 else values
            self.counts += np.histogram(values, BINS, (self.low, self.top))[0]

    def range(self, method: Method) -> tuple[float, float]:
        """Return the range of numbers that int8 should represent, chosen by a method."""
        if self.is_known or method == "min-max" or self.high <= self.low:
            return self.low, self.high
        return _RANGES[method](self)

    @property
    def means(self) -> Array:
        """Mean of each channel. Channels are on axis 1 of an image, otherwise on the last axis."""
        return self.sums / max(self.samples, 1)

    @property
    def edges(self) -> Array:
        """The BINS + 1 edges of the bins."""
        return np.linspace(self.low, self.top, BINS + 1)

    @property
    def top(self) -> float:
        """End of the last bin: `high`, or more if the bins' edges would be equal in float32."""
        size = max(abs(self.low), abs(self.high))
        return max(self.high, self.low + BINS * LEAST_BIN * max(size, LEAST_BIN))


def observe(
    graph: Graph, samples: Iterable[Mapping[str, Array]], names: Iterable[str]
) -> dict[str, Histogram]:
    """Return the histograms of values over all samples, by the name of the value.

    Values with an infinity or NaN in any sample are left out. A sample is drawn from `samples` only
    after the previous sample has been run.

    Args:
        graph: Graph that computes the values.
        samples: Inputs of the graph by name, for each sample.
        names: Names of the values to observe.

    Raises:
        UsageError: there is no sample.
    """
    observed = list(names)
    run = _runner(graph, observed)
    histograms = {name: Histogram() for name in observed} | _known(graph, observed)
    cached: list[list[Array]] = []  # results of the first samples, which are not run again
    seen: list[Mapping[str, Array]] = []
    size = 0
    for sample in samples:
        seen.append(sample)
        results = run(sample)
        for name, values in zip(observed, results, strict=True):
            histograms[name].widen(values)
        size += sum(values.nbytes for values in results)
        cached += [results] if size <= MOST_CACHED else []
    if not seen:
        raise UsageError(
            "quantisation needs sample inputs, and there are none; give some with --data"
        )
    for number, sample in enumerate(seen):
        results = cached[number] if number < len(cached) else run(sample)
        for name, values in zip(observed, results, strict=True):
            histograms[name].count(values)
    return {name: histogram for name, histogram in histograms.items() if histogram.is_finite}


def _known(graph: Graph, names: Sequence[str]) -> dict[str, Histogram]:
    """Return the histograms of the values whose operator limits them to a known range."""
    nodes = (node for node in graph.nodes if node.op == "Pixels" and node.output in names)
    return {node.output: Histogram(*range_of(node), is_known=True) for node in nodes}


def _runner(graph: Graph, names: Sequence[str]) -> Callable[[Mapping[str, Array]], list[Array]]:
    inner = [name for name in names if name not in graph.inputs]
    if not inner:
        return lambda sample: [sample[name] for name in names]
    expanded = expand(graph)
    expanded.outputs = inner
    session = graph_session(expanded, ALL_CORES)

    def run(sample: Mapping[str, Array]) -> list[Array]:
        outputs = session.run(sample)
        return [sample[name] if name in graph.inputs else outputs[name] for name in names]

    return run


def _percentile(histogram: Histogram) -> tuple[float, float]:
    share = np.cumsum(histogram.counts) / histogram.counts.sum()
    cut_share = (1 - PERCENTILE / 100) / 2
    edges = histogram.edges
    low = edges[np.searchsorted(share, cut_share)]
    high = edges[min(np.searchsorted(share, 1 - cut_share) + 1, BINS)]
    return float(low), float(high)


def _candidates(histogram: Histogram) -> list[tuple[float, float]]:
    """Return 65 ranges: the full range, and ever shorter ranges, down to a fifth of the full range.

    The number of ranges and the length of the shortest range are chosen by hand, not measured.
    """
    shares = np.linspace(1.0, 0.2, 65)
    return [(histogram.low * share, histogram.high * share) for share in shares]


def _entropy(histogram: Histogram) -> tuple[float, float]:
    """Return the range whose 256 levels best preserve the distribution (Migacz, GTC 2017).

    The measure is the Kullback-Leibler divergence. Zeros are not counted, because every range
    represents them exactly, and the many zeros after a ReLU would outweigh all other numbers.
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
    """Return the range with the least mean squared error of rounding and clipping."""
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
