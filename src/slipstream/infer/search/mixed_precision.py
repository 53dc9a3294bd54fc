"""The search for a mixed precision, if a model with all values in int8 is too inaccurate.

Two quantities are measured for every value (or, if time is short, for a few neighbouring values
together): noise and saved time. The noise of a value is the noise of the outputs if only this value
is int8; it is measured for several ranges. The saved time of a value is the time that int8 saves in
the nodes that read the value. The values with the most noise per saved time stay in floating point.
Bisection finds how many values must stay in floating point; it runs each mixed precision and
compares the outputs with the reference's. After the bisection, each value in floating point is
tried in int8 once more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slipstream.errors import UnsupportedError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.accuracy.reference import ReferenceCases
from slipstream.infer.engines import Engine, Executable, Recipe
from slipstream.infer.graph.analysis import analyse
from slipstream.infer.graph.graph import Graph

Ranges = Mapping[str, tuple[float, float]]

# Least saving of a part, in seconds or operations, so that noise is not divided by 0. Chosen by
# hand, not measured.
LEAST_SAVED = 1e-9
# Number of profiled runs; the least time of a step counts. Chosen by hand, not measured.
PROFILES = 5
# Number of cases on which the noise of a part is measured. Chosen by hand, not measured.
FEW_CASES = 4


@dataclass(frozen=True)
class PrecisionPart:
    """Values of a graph that all have the same precision: int8 or floating point.

    Args:
        ranges: Range of each value in int8, by the name of the value. The ranges are those of the
            calibration method that causes the least noise.
        noise: Power of the noise in the outputs of the graph, divided by the power of the signal,
            if only the values of this part are int8. 0 if the engine does not compute the nodes
            that read the values.
        saved: Time in seconds that int8 saves in the nodes that read the values. If the engine does
            not measure its steps, `saved` is the number of operations of these nodes.
    """

    ranges: Ranges
    noise: float
    saved: float


class MixedPrecision:
    """The search for a mixed precision, for one engine.

    Args:
        engine: Engine that runs the candidates.
        graph: Graph that the candidates run.
        recipe: Recipe in which all values that can be int8 are int8. The field `rest` is the
            precision of values that do not stay in int8.
        alternatives: Ranges of all values, by name, one mapping for each calibration method.
        threads: Number of threads of every candidate.
        cases: Samples, with the outputs of the reference, on which candidates are judged. The noise
            of a part is measured on the first four samples.
    """

    def __init__(
        self,
        engine: Engine,
        graph: Graph,
        recipe: Recipe,
        alternatives: Sequence[Ranges],
        threads: int,
        cases: ReferenceCases,
    ) -> None:
        self._engine, self._graph, self._recipe = engine, graph, recipe
        self._alternatives, self._threads = alternatives, threads
        self._cases = cases

    def order(
        self,
        seconds: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> list[PrecisionPart]:
        """Divide all values into parts; sort the parts by noise per saved time, the highest first.

        The first parts of the result should be the first to stay in floating point.

        Args:
            seconds: Approximate time limit, in seconds, for measuring all values. If the time is
                too short for measuring each value by itself, several values form a part.
            tell: Function called with the current step.
            clock: Function that returns the time in seconds (default time.monotonic).
        """
        names = list(self._alternatives[0])
        saved = self._saved()
        begin = clock()
        parts = [self._part(names[:1], saved)]
        done = 1
        while done < len(names):
            tell(f"the noise of bytes is measured: {done} of {len(names)} values")
            spent = clock() - begin
            count = max(int((seconds - spent) * len(parts) / max(spent, LEAST_SAVED)), 1)
            size = math.ceil((len(names) - done) / count)
            parts.append(self._part(names[done : done + size], saved))
            done += size
        return sorted(parts, key=lambda part: -part.noise / max(part.saved, LEAST_SAVED))

    def least(
        self,
        order: Sequence[PrecisionPart],
        is_good: Callable[[Comparison], bool],
        go_on: Callable[[], bool] = lambda: True,
    ) -> int:
        """Return the number of parts at the beginning of `order` that must stay in floating point.

        The number is found by bisection, which ends early if `go_on` returns False. The result is
        the number of all parts if no smaller number is known to be accurate enough.
        """
        good, bad = len(order), -1
        while good - bad > 1 and go_on():
            middle = (good + bad) // 2
            if self._is_good(order[middle:], is_good):
                good = middle
            else:
                bad = middle
        return good

    def pruned(
        self,
        order: Sequence[PrecisionPart],
        count: int,
        is_good: Callable[[Comparison], bool],
        go_on: Callable[[], bool],
    ) -> list[PrecisionPart]:
        """Return the parts that become int8: some of the first `count`, and all parts after these.

        The first `count` parts are tried in int8 one after another, in the order of the time that
        they save; the part that saves the most time comes first. A part becomes int8 if the outputs
        are still accurate enough with this part in int8. No further part is tried once `go_on`
        returns False.
        """
        taken = list(order[count:])
        for part in sorted(order[:count], key=lambda part: -part.saved):
            if not go_on():
                break
            if self._is_good([*taken, part], is_good):
                taken.append(part)
        return taken

    def of(self, parts: Sequence[PrecisionPart]) -> Recipe:
        """Return the recipe in which the values of `parts`, and no others, are int8."""
        ranges = {name: ends for part in parts for name, ends in part.ranges.items()}
        return self._recipe.model_copy(update={"ranges": ranges})

    def _part(self, names: Sequence[str], saved: Mapping[str, float]) -> PrecisionPart:
        seconds = sum(saved.get(name, 0.0) for name in names)
        parts: list[PrecisionPart] = []
        for alternative in self._alternatives:
            ranges = {name: alternative[name] for name in names}
            if any(part.ranges == ranges for part in parts):
                continue
            recipe = self._recipe.model_copy(update={"ranges": ranges, "rest": "fp32"})
            try:
                noise = 10 ** (-self._compared(recipe, self._cases.first(FEW_CASES)).snr_db / 10)
            except UnsupportedError:  # the engine leaves the readers to another engine
                return PrecisionPart(ranges, 0.0, 0.0)
            parts.append(PrecisionPart(ranges, noise, seconds))
        return min(parts, key=lambda part: part.noise)

    def _is_good(
        self, parts: Sequence[PrecisionPart], is_good: Callable[[Comparison], bool]
    ) -> bool:
        try:
            return is_good(self._compared(self.of(parts), self._cases))
        except UnsupportedError:  # the engine computes none of these values
            return False

    def _compared(self, recipe: Recipe, cases: ReferenceCases) -> Comparison:
        executable = self._prepared(recipe)
        try:
            return cases.compare(executable)
        finally:
            executable.close()

    def _prepared(self, recipe: Recipe) -> Executable:
        return self._engine.prepare(self._graph, recipe, self._threads)

    def _saved(self) -> dict[str, float]:
        """Return the saving by int8 in the nodes that read a value, by the name of the value.

        The unit is seconds if the engine measures its steps, else operations.
        """
        readers = self._graph.uses()
        floats = self._recipe.model_copy(update={"precision": self._recipe.rest, "ranges": {}})
        slow, fast = self._profile(floats), self._profile(self._recipe)
        if slow is None or fast is None:
            costs = {node.output: float(node.flops) for node in analyse(self._graph).nodes}
            slow, fast = costs, dict.fromkeys(costs, 0.0)
        steps = _steps(self._graph, slow.keys() | fast.keys())
        saved = {name: slow.get(name, 0.0) - fast.get(name, 0.0) for name in slow.keys() | fast}
        return {
            name: math.fsum(
                saved.get(steps.get(node.output, ""), 0.0) for node in readers.get(name, ())
            )
            for name in self._alternatives[0]
        }

    def _profile(self, recipe: Recipe) -> dict[str, float] | None:
        """Return each step's shortest time in seconds; None if the engine measures no steps."""
        if not self._engine.measures_steps:
            return None
        executable = self._prepared(recipe)
        try:
            inputs = self._cases.cases[0].sample.inputs
            runs = [executable.profile(inputs) for _ in range(PROFILES)]
            return {name: min(run.get(name, 0.0) for run in runs) for name in runs[0]}
        finally:
            executable.close()


def _steps(graph: Graph, step_outputs: set[str]) -> dict[str, str]:
    """Return a mapping from the output of each node to the output of the engine's step for it.

    The output of the step is the node's own output, or that of a later node with which the engine
    fused the node.
    """
    uses = graph.uses()
    steps: dict[str, str] = {}
    for node in reversed(graph.nodes):
        for output in node.outputs:
            readers = uses.get(output, [])
            if output in step_outputs:
                steps[output] = output
            elif len(readers) == 1:
                steps[output] = steps.get(readers[0].output, "")
    return steps
