"""One candidate during the search: the executable, the comparisons and the times."""

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
    "tf32": 4,
    "bf16": 2,
    "fp16": 2,
    "int8": 1,
    "int8-dynamic": 1,
    "int8-weights": 1,
}
# Size of weights in bytes from which the memory of a closed candidate is returned to the system at
# once. Chosen by hand, not measured.
LARGE = 64 * 2**20


@dataclass(eq=False)
class Trial:
    """One candidate.

    Args:
        engine: Engine that runs the candidate.
        recipe: Recipe of the candidate.
        method: Calibration method that found the ranges of int8: a name in `METHODS`, or "noise"
            for a mixed precision (default None: there are no ranges).
        executable: The prepared graph (None before `prepare` and after `close`).
        prepare_seconds: Duration of `prepare` in seconds.
        state: Outcome of the candidate for the report (default: measured, so it can be chosen).
        reason: Reason for the state, or "".
        comparison: Comparison of the candidate's outputs with the reference's, on the judging
            samples.
        held_out: Comparison on the held-out samples; None if there was none.
        run_seconds: Duration of the candidate's second run in seconds, an estimate of the time per
            sample.
        timing: Times of the rounds; None until the candidate is timed. In a round, every stream of
            the recipe makes a call at the same time.
        weights_bytes: Size in bytes of the graph's constants in the precisions of the recipe.
        kept: Number of values that could be int8, but are not in the mixed precision (default 0).
    """

    engine: Engine
    recipe: Recipe
    method: str | None = None
    executable: Executable | None = None
    prepare_seconds: float | None = None
    state: State = State.MEASURED
    reason: str = ""
    comparison: Comparison = field(default_factory=Comparison)
    held_out: Comparison | None = None
    run_seconds: float = 0.0
    timing: Timing | None = None
    weights_bytes: int = 0
    kept: int = 0

    @property
    def seconds(self) -> float:
        """Lower quartile of the time of one call in seconds; only for a timed candidate.

        Candidates are compared by the lower quartile, because other work on the machine affects it
        least.
        """
        assert self.timing is not None
        return self.timing.low / self.recipe.streams

    @property
    def is_alive(self) -> bool:
        """Whether the candidate is prepared, or was closed after timing and can be chosen."""
        return self.executable is not None or (
            self.timing is not None and self.state is State.MEASURED
        )

    def prepare(self, graph: Graph, threads: int, inputs: Mapping[str, Array]) -> None:
        """Prepare the candidate and run it twice; after a failure, close it and record why."""
        self.weights_bytes = weights_bytes(graph, self.recipe)
        begin = time.perf_counter()
        try:
            self.executable = self.engine.prepare(graph, self.recipe, threads)
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
        """Return the function to time: all streams make one call each at the same time."""
        executable = self.executable
        assert executable is not None
        if self.recipe.streams == 1:
            return lambda: executable.run(inputs)
        several = [inputs] * self.recipe.streams
        return lambda: list(callers.map(executable.run, several))

    def end(self, state: State, reason: str) -> None:
        """Record the final state of the candidate and the reason for it; close the candidate."""
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
        """Return the entry of the report for this candidate."""
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
    """Return the size in bytes of a graph's constants in the precisions of a recipe."""
    if recipe.parts:
        graphs = pieces(graph, [part.end for part in recipe.parts[:-1]])
        pairs = zip(graphs, recipe.parts, strict=True)
        return sum(weights_bytes(piece, part.recipe) for piece, part in pairs)
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
