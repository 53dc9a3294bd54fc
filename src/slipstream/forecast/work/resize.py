"""Workload at any micro-batch size, interpolated from two traced workloads.

The interpolation is linear, because every size is linear in the number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slipstream.errors import UsageError
from slipstream.forecast.work.workload import Operator, Product, TensorValue, Workload

# Pairs of micro-batch sizes to trace, in samples; the first pair that the model accepts is used. A
# batch of 1 may be too small for a model, or run other operators. If samples are tokens, a batch
# must contain at least one sentence.
COUNTS = ((1, 2), (2, 4), (64, 128))


class Resizable:
    """Model that was traced at two micro-batch sizes and can be resized to any micro-batch size.

    Args:
        small: Workload at the smaller micro-batch size.
        large: Workload at the larger micro-batch size, with the same operators as `small`.

    Raises:
        UsageError: The model does not run the same operators at both micro-batch sizes.
    """

    def __init__(self, small: Workload, large: Workload) -> None:
        names = [
            [(op.name, op.kind, len(op.products)) for op in workload.operators]
            for workload in (small, large)
        ]
        if names[0] != names[1] or small.samples >= large.samples:
            raise UsageError(
                f"{small.name} runs {len(names[0])} operators for a micro-batch of {small.samples}"
                f" and {len(names[1])} for one of {large.samples}; a forecast needs the same"
                " operators for both"
            )
        self._small, self._large = small, large
        self._workloads: dict[tuple[int, int], Workload] = {
            (small.samples, 1): small,
            (large.samples, 1): large,
        }

    @property
    def traced(self) -> tuple[Workload, Workload]:
        """Both traced workloads, the smaller first."""
        return self._small, self._large

    def share(self, samples: int, context: int = 1) -> float:
        """Return the position of a micro-batch size; the smaller traced size is 0, the larger is 1.

        Args:
            samples: Micro-batch size in samples, at least 1.
            context: Number of ranks that divide each sequence (default 1).
        """
        small, large = self._small.samples, self._large.samples
        return (samples / context - small) / (large - small)

    def at(self, samples: int, context: int = 1) -> Workload:
        """Return the workload at a micro-batch size.

        Args:
            samples: Micro-batch size in samples, at least 1.
            context: Number of ranks that divide each sequence (default 1). The workload is that of
                one rank, whose operators process a share of the tokens. Attention on the rank
                computes a share of the queries (rows) with all keys (columns).
        """
        key = samples, context
        if key not in self._workloads:
            self._workloads[key] = self._resized(samples, context)
        return self._workloads[key]

    def _resized(self, samples: int, context: int) -> Workload:
        small, large = self._small, self._large
        share = self.share(samples, context)
        operators = zip(small.operators, large.operators, strict=True)
        values = zip(small.values, large.values, strict=False)
        return replace(
            small,
            samples=samples,
            operators=tuple(_operator(one, two, share) for one, two in operators),
            values=tuple(_value(one, two, share) for one, two in values),
        )


def resizable(
    trace: Callable[[int], Workload], counts: Sequence[tuple[int, int]] = COUNTS
) -> Resizable:
    """Trace a model at the first pair of micro-batch sizes that it accepts, and return it.

    Args:
        trace: Function that returns the workload at a micro-batch size in samples.
        counts: Pairs of micro-batch sizes to try, in samples (default `COUNTS`).

    Raises:
        UsageError: The model accepts none of the pairs.
    """
    for attempt, (small, large) in enumerate(counts):
        try:
            return Resizable(trace(small), trace(large))
        except UsageError:
            if attempt + 1 == len(counts):
                raise
    raise AssertionError(counts)


def _between(one: float, two: float, share: float) -> float:
    return one + (two - one) * share


def _operator(one: Operator, two: Operator, share: float) -> Operator:
    if one.bytes_moved == two.bytes_moved and one.products == two.products:
        return one
    products = zip(one.products, two.products, strict=True)
    return replace(
        one,
        bytes_moved=_between(one.bytes_moved, two.bytes_moved, share),
        products=tuple(_product(a, b, share) for a, b in products),
    )


def _product(one: Product, two: Product, share: float) -> Product:
    sizes = {
        name: max(1, round(_between(getattr(one, name), getattr(two, name), share)))
        for name in ("batch", "m", "n", "k")
    }
    return replace(one, **sizes)


def _value(one: TensorValue, two: TensorValue, share: float) -> TensorValue:
    num_bytes = max(0, round(_between(one.num_bytes, two.num_bytes, share)))
    return TensorValue(num_bytes, one.born, one.dies)
