"""The search for a mixed precision, for models that are too inaccurate with all values in int8.

Two quantities are measured for every value, or for a few neighbouring values together if time is
short. One is the noise of the outputs if only this value is int8, with each of several ranges. The
other is the time that its readers (the nodes that read it) save in int8. The values with the most
noise per saved time stay in floating point. Their number is found by bisection, in which each mixed
precision is run and compared with the reference. Then each of these values is tried in int8 once
more.
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
    """Values that become int8 together.

    Args:
        ranges: Range of each value, chosen for the least noise.
        noise: Ratio of noise to signal in the outputs if only these values are int8.
        saved: Time in seconds that the readers of the values save, or the number of the readers'
            operations if the engine does not measure its steps.
    """

    ranges: Ranges
    noise: float
    saved: float


class MixedPrecision:
    """The search for a mixed precision, for one engine.

    Args:
        engine: Engine that runs the candidates.
        graph: Graph that the candidates run.
        recipe: Recipe in which all values that can be int8 are int8; `rest` is the precision that
            the other values get.
        alternatives: Ranges of the same values, one mapping per calibration method.
        threads: Number of threads of every candidate.
        cases: Samples and reference outputs that judge the candidates; the noise of a part is
            measured on the first four.
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
        """Divide all values into parts, and return the parts by falling noise per saved time.

        The first parts are the first choice for staying in floating point.

        Args:
            seconds: Approximate time limit in seconds; if it is too short for measuring every
                value, several values form a part.
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

        It is found by bisection, which ends early if `go_on` returns False. The result is the
        number of all parts if no smaller number is known to be accurate enough.
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
        """Return the parts that become int8: all after the first `count`, and some of the first.

        The first `count` parts are tried in int8 one after another, the part that saves most time
        first. A part becomes int8 if the outputs stay accurate enough. No further part is tried
        once `go_on` returns False.
        """
        taken = list(order[count:])
        for part in sorted(order[:count], key=lambda part: -part.saved):
            if not go_on():
                break
            if self._is_good([*taken, part], is_good):
                taken.append(part)
        return taken

    def of(self, parts: Sequence[PrecisionPart]) -> Recipe:
        """Return the recipe in which the values of these parts are int8."""
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
        """Return the time that the readers of each value save if the value is int8.

        It is in seconds if the engine measures its steps, else in operations.
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
        """Return the least time of each step in seconds; None if the engine measures no steps."""
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
    """Return, for the output of every node, the output of the step that computes it.

    This is the node's own output, or the output of a later node with which the engine fused it.
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
