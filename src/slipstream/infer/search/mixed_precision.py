"""Which values become bytes where not all of them may: mixed precision, found by measuring.

For every value (or a few neighbours at a time, where time is short) two things are measured: the
noise in the results when that value alone is bytes, by each of several ranges, and the time that
its readers save by it. Those that cost most noise for the time that they save stay in floating
point; how many of them have to is found by halving, each time with the real results of the mixture.
Then each of them is tried as bytes once more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slipstream.errors import UnsupportedError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.accuracy.yardstick import Yardstick
from slipstream.infer.data import Sample
from slipstream.infer.engines import Engine, Executable, Recipe
from slipstream.infer.engines.protocol import Profiled
from slipstream.infer.graph.analysis import analyse
from slipstream.infer.graph.graph import Array, Graph

Ranges = Mapping[str, tuple[float, float]]

LEAST_SAVED = 1e-9  # seconds, or operations: what saves less may as well stay as it is
PROFILES = 5


@dataclass(frozen=True)
class Case:
    """A sample and the right results for it."""

    sample: Sample
    right: Mapping[str, Array]


@dataclass(frozen=True)
class Part:
    """Values that become bytes together.

    Args:
        ranges: of the values, those of the least noise.
        noise: of the results, beside a signal of 1, when they alone are bytes.
        saved: seconds of their readers, or another measure of the same that suits all parts.
    """

    ranges: Ranges
    noise: float
    saved: float


class MixedPrecision:
    """The search for one engine.

    Args:
        engine: that runs the candidates.
        graph: that they run.
        recipe: for bytes everywhere; `rest` says what the others are.
        alternatives: ranges of the same values, one or more of each.
        threads: of every candidate.
        cases: by which candidates are judged; the first `few` find the noise.
        few: 1 or more.
        yardstick: which numbers of the results are judged together; default all of an output.
    """

    def __init__(
        self,
        engine: Engine,
        graph: Graph,
        recipe: Recipe,
        alternatives: Sequence[Ranges],
        threads: int,
        cases: Sequence[Case],
        few: int = 4,
        yardstick: Yardstick | None = None,
    ) -> None:
        self._engine, self._graph, self._recipe = engine, graph, recipe
        self._alternatives, self._threads = alternatives, threads
        self._cases, self._few = cases, few
        self._yardstick = yardstick or Yardstick()

    def order(
        self,
        seconds: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> list[Part]:
        """All values with a range, those first that should stay in floating point first.

        Takes about `seconds`: values are measured several at a time where there are too many, the
        more the longer the parts before them took.
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
        order: Sequence[Part],
        is_good: Callable[[Comparison], bool],
        go_on: Callable[[], bool] = lambda: True,
    ) -> int:
        """How many of the first parts have to stay in floating point, by halving as long as
        `go_on` says so; all of them if nothing else is known to be good enough."""
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
        order: Sequence[Part],
        count: int,
        is_good: Callable[[Comparison], bool],
        go_on: Callable[[], bool],
    ) -> list[Part]:
        """What may become bytes when the first `count` parts stay; and of these, one after the
        other, those that save most time and without which the results stay good enough."""
        taken = list(order[count:])
        for part in sorted(order[:count], key=lambda part: -part.saved):
            if not go_on():
                break
            if self._is_good([*taken, part], is_good):
                taken.append(part)
        return taken

    def of(self, parts: Sequence[Part]) -> Recipe:
        """The recipe with the values of these parts as bytes."""
        ranges = {name: ends for part in parts for name, ends in part.ranges.items()}
        return self._recipe.model_copy(update={"ranges": ranges})

    def _part(self, names: Sequence[str], saved: Mapping[str, float]) -> Part:
        seconds = sum(saved.get(name, 0.0) for name in names)
        parts: list[Part] = []
        for alternative in self._alternatives:
            ranges = {name: alternative[name] for name in names}
            if any(part.ranges == ranges for part in parts):
                continue
            recipe = self._recipe.model_copy(update={"ranges": ranges, "rest": "fp32"})
            try:
                noise = 10 ** (-self._compared(recipe, self._cases[: self._few]).snr_db / 10)
            except UnsupportedError:  # the engine leaves what reads them to another one
                return Part(ranges, 0.0, 0.0)
            parts.append(Part(ranges, noise, seconds))
        return min(parts, key=lambda part: part.noise)

    def _is_good(self, parts: Sequence[Part], is_good: Callable[[Comparison], bool]) -> bool:
        try:
            return is_good(self._compared(self.of(parts), self._cases))
        except UnsupportedError:  # none of these values is the engine's
            return False

    def _compared(self, recipe: Recipe, cases: Sequence[Case]) -> Comparison:
        executable = self._prepared(recipe)
        comparison = Comparison(self._yardstick)
        try:
            for case in cases:
                found = executable.run(case.sample.inputs)
                comparison.add(found, case.right, case.sample.labels)
        finally:
            executable.close()
        return comparison

    def _prepared(self, recipe: Recipe) -> Executable:
        return self._engine.prepare(self._graph, recipe, self._threads)

    def _saved(self) -> dict[str, float]:
        """What the readers of each value save: seconds where the engine tells how long each of its
        steps takes, else operations."""
        readers = self._graph.uses()
        floats = self._recipe.model_copy(update={"precision": self._recipe.rest, "ranges": {}})
        slow, fast = self._profile(floats), self._profile(self._recipe)
        if slow is None or fast is None:
            costs = {node.output: float(node.flops) for node in analyse(self._graph).nodes}
            slow, fast = costs, dict.fromkeys(costs, 0.0)
        steps = _steps(self._graph, slow.keys() | fast.keys())
        gained = {name: slow.get(name, 0.0) - fast.get(name, 0.0) for name in slow.keys() | fast}
        return {
            name: math.fsum(
                gained.get(steps.get(node.output, ""), 0.0) for node in readers.get(name, ())
            )
            for name in self._alternatives[0]
        }

    def _profile(self, recipe: Recipe) -> dict[str, float] | None:
        executable = self._prepared(recipe)
        try:
            if not isinstance(executable, Profiled):
                return None
            runs = [executable.profile(self._cases[0].sample.inputs) for _ in range(PROFILES)]
            return {name: min(run.get(name, 0.0) for run in runs) for name in runs[0]}
        finally:
            executable.close()


def _steps(graph: Graph, known: set[str]) -> dict[str, str]:
    """For the output of every node the value of the step that computes it: the node's own, or that
    of a node after it which was taken along."""
    uses = graph.uses()
    found: dict[str, str] = {}
    for node in reversed(graph.nodes):
        for output in node.outputs:
            readers = uses.get(output, [])
            if output in known:
                found[output] = output
            elif len(readers) == 1:
                found[output] = found.get(readers[0].output, "")
    return found
