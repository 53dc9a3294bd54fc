"""Slipstream's own kernels, with ONNX Runtime for the operators that they lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.pool import Pool
from slipstream.infer.engines.protocol import (
    Executable,
    GraphEngine,
    HostExecutable,
    Precision,
    Recipe,
    Small,
)
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.native.formats import BFloat16, Bytes, Format
from slipstream.infer.native.outlets import channels_last
from slipstream.infer.native.precision import attended, is_large, joined, storable

if TYPE_CHECKING:
    from slipstream.infer.native.runner import Runner


class Native(GraphEngine):
    """Slipstream's kernels, for graphs with at least one product that the kernels can compute.

    A product is a convolution, a matrix product with a constant matrix, or attention.
    """

    name = "native"

    runs_imported = False
    mixes_dynamic = True
    measures_steps = True
    is_quick_to_prepare = True

    def available(self) -> str | None:
        """Return None if the kernels and ONNX Runtime are installed, else the reason."""
        try:
            from slipstream import _kernels  # noqa: F401  # pyright: ignore
        except ImportError as error:
            return f"this build of Slipstream has no kernels ({error}); build it again"
        return missing("onnxruntime")

    def precisions(self) -> tuple[Precision, ...]:
        """Return the precisions that this processor has instructions for."""
        from slipstream import _kernels  # pyright: ignore

        if _kernels.adds_pairs():  # pyright: ignore
            return ("fp32", "int8", "int8-dynamic")
        level: int = _kernels.level()  # pyright: ignore
        return ("fp32", "int8", "int8-dynamic", "bf16")[: 1 if level == 0 else level + 2]

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`."""
        if not recipe.rewrites:
            raise UnsupportedError(
                "the native engine runs rewritten graphs only, not graphs as imported"
            )
        return _Program(channels_last(graph), recipe, max(threads // recipe.streams, 1))


def _formats(body: Graph, recipe: Recipe) -> dict[str, Format]:
    """Return the storage format of each value that may be uint8 or bfloat16; None means float32."""
    if recipe.precision == "fp32":
        return {}
    names = storable(body)
    half: Format = BFloat16()
    halves: dict[str, Format] = dict.fromkeys(attended(body), half) if _has_halves() else {}
    if recipe.precision == "int8-dynamic":
        if not any(is_large(body, node) for node in body.nodes):
            raise UnsupportedError(
                "int8-dynamic needs a product with a large constant matrix; the graph has none"
            )
        return halves
    if recipe.precision == "bf16":
        return {**halves, **dict.fromkeys(names, BFloat16())}
    if recipe.ranges.keys().isdisjoint(names):
        raise UnsupportedError(
            "int8 needs a value that the native engine can store as bytes; there is none"
        )
    rest = BFloat16() if recipe.rest == "bf16" else None
    ranges = joined(body, recipe.ranges)
    formats = {name: Bytes.of_range(*ranges[name]) if name in ranges else rest for name in names}
    return {**halves, **formats}


def _has_halves() -> bool:
    from slipstream import _kernels  # pyright: ignore

    return _kernels.level() >= 2  # pyright: ignore


class _Program(HostExecutable):
    """A graph that is ready to run. Each call takes a runner of its own, so no call waits."""

    def __init__(self, graph: Graph, recipe: Recipe, threads: int) -> None:
        from slipstream.infer.native.operations import OPERATIONS
        from slipstream.infer.native.partition import partition
        from slipstream.infer.native.runner import Runner

        formats = _formats(partition(graph, OPERATIONS).body, recipe)
        is_dynamic = "int8-dynamic" in (recipe.precision, recipe.rest)
        # Runners read constants of the graph, so `close` drops the function that has the graph.
        self._make: Callable[[], Runner] | None = lambda: Runner(
            graph, formats, threads, recipe.shifts, is_dynamic=is_dynamic
        )
        self._runners: Pool[Runner] = Pool(self._new_runner)
        with self._runners.borrowed():  # an unsupported graph fails now, not at the first call
            pass

    def _new_runner(self) -> Runner:
        if self._make is None:
            raise UsageError("the executable is closed; prepare the model again")
        return self._make()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._runners.borrowed() as runner:
            return runner.run(inputs)

    def profile(self, inputs: Mapping[str, Array]) -> dict[str, float]:
        """See `Executable`."""
        total: dict[str, float] = {}
        with self._runners.borrowed() as runner:
            for _, value, seconds in runner.profile(inputs):
                total[value] = total.get(value, 0.0) + seconds
        return total

    @property
    def small(self) -> Mapping[str, Small]:
        """See `Executable`."""
        with self._runners.borrowed() as runner:
            return runner.compiled.small

    def close(self) -> None:
        self._make = None
        self._runners.clear()
