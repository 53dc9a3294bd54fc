"""Candidates under way: made ready, judged, timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from slipstream.errors import SlipstreamError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines.protocol import Engine, Executable, Precision, Recipe
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.graph.parts import pieces
from slipstream.infer.machine import give_memory_back
from slipstream.infer.measure import Timing
from slipstream.infer.native.formats import SMALLEST_MATRIX
from slipstream.infer.native.precision import is_large
from slipstream.infer.package.report import Candidate, State

BYTES: dict[Precision, int] = {
    "fp32": 4,
    "bf16": 2,
    "fp16": 2,
    "int8": 1,
    "int8-dynamic": 1,
    "int8-weights": 1,
}
LARGE = 64 * 2**20  # bytes of weights from which a closed candidate's memory is given back at once


@dataclass(eq=False)
class Trial:
    """One candidate.

    Args:
        recipe: Recipe of the candidate.
        method: Calibration method of the int8 ranges: one of `METHODS`, or "noise".
        executable: until it is closed.
        comparison: difference of its results from the reference's, on the samples that judge.
        held_out: the same on those that were held out; only of one that might be chosen.
        timing: Times of rounds, each of as many simultaneous calls as the recipe has streams.
        kept: Values of a mixed precision that could be bytes and have no range (default 0).
    """

    recipe: Recipe
    method: str | None = None
    executable: Executable | None = None
    prepare_seconds: float | None = None
    state: State = State.MEASURED
    reason: str = ""
    comparison: Comparison = field(default_factory=Comparison)
    held_out: Comparison | None = None
    run_seconds: float = 0.0  # of its second run: what it takes to compare it on a sample
    timing: Timing | None = None
    weights_bytes: int = 0
    kept: int = 0

    @property
    def seconds(self) -> float:
        """Time of one call in the best quarter of the rounds, by which trials are compared: what
        else runs on the machine disturbs the others. Only of a trial that was timed."""
        assert self.timing is not None
        return self.timing.low / self.recipe.streams

    @property
    def is_alive(self) -> bool:
        """Whether it is open, or was timed and closed and may be chosen."""
        return self.executable is not None or (
            self.timing is not None and self.state is State.MEASURED
        )

    def prepare(
        self, engine: Engine, graph: Graph, threads: int, inputs: Mapping[str, Array]
    ) -> None:
        """Make it ready and run it once; what goes wrong ends it, and is its reason."""
        self.weights_bytes = weights_bytes(graph, self.recipe)
        begin = time.perf_counter()
        try:
            self.executable = engine.prepare(graph, self.recipe, threads)
            self.executable.run(inputs)
            again = time.perf_counter()
            self.executable.run(inputs)
            self.run_seconds = time.perf_counter() - again
        except (SlipstreamError, RuntimeError, ValueError, MemoryError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            self.end(State.FAILED, lines[0])
        self.prepare_seconds = time.perf_counter() - begin

    def round(
        self, inputs: Mapping[str, Array], callers: ThreadPoolExecutor
    ) -> Callable[[], object]:
        """Return the function to time: as many calls at the same time as there are streams."""
        executable = self.executable
        assert executable is not None
        if self.recipe.streams == 1:
            return lambda: executable.run(inputs)
        several = [inputs] * self.recipe.streams
        return lambda: list(callers.map(executable.run, several))

    def end(self, state: State, reason: str) -> None:
        """End the candidate with this state and reason, and close it."""
        self.state, self.reason = state, reason
        self.close()

    def close(self) -> None:
        """Close the executable and release its memory."""
        if self.executable is not None:
            self.executable.close()
            self.executable = None
            if self.weights_bytes >= LARGE:
                give_memory_back()

    def candidate(self) -> Candidate:
        """Return the candidate in the form of the report."""
        timing, share = self.timing, 1e3 / self.recipe.streams
        judged = self.comparison.samples > 0
        return Candidate(
            engine=self.recipe.engine,
            precision=self.recipe.precision,
            rewrites=self.recipe.rewrites,
            streams=self.recipe.streams,
            method=self.method,
            kept=self.kept,
            rest=self.recipe.rest,
            state=self.state,
            reason=self.reason,
            snr_db=self.comparison.snr_db if judged else None,
            top1_loss=self.comparison.top1_loss if judged else None,
            top1=self.comparison.top1 if judged else None,
            agreement=self.comparison.agreement if judged else None,
            samples=self.comparison.samples,
            median_ms=None if timing is None else timing.median * share,
            low_ms=None if timing is None else timing.low * share,
            high_ms=None if timing is None else timing.high * share,
            rounds=0 if timing is None else timing.rounds,
            weights_bytes=self.weights_bytes,
            prepare_seconds=self.prepare_seconds,
        )


def weights_bytes(graph: Graph, recipe: Recipe) -> int:
    """Return the bytes of a graph's constants in the precisions of a recipe."""
    if recipe.parts:
        graphs = pieces(graph, [part.end for part in recipe.parts[:-1]])
        each = zip(graphs, recipe.parts, strict=True)
        return sum(weights_bytes(piece, part.recipe) for piece, part in each)
    mixed = {
        name
        for node in graph.nodes
        if recipe.precision == "int8" and recipe.ranges.keys().isdisjoint(node.inputs)
        for name in node.reads()
    }
    total = 0
    matrices = {node.inputs[1] for node in graph.nodes if is_large(graph, node)}
    for name, array in graph.constants.items():
        is_matrix = array.ndim > 1 and array.size >= SMALLEST_MATRIX and array.itemsize == 4
        precision = recipe.rest if name in mixed else recipe.precision
        if precision == "int8-dynamic" and name not in matrices:
            precision = "fp32"
        total += array.size * BYTES[precision] if is_matrix else array.nbytes
    return total
