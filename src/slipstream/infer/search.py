"""Which engine runs a model best here, in which precision and from which graph: all are tried.

Every candidate's results are held against those of the graph as imported, which ONNX Runtime runs
in float32 without optimisations. Those that keep to the budget are timed by turns, and the best one
wins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy import Comparison
from slipstream.infer.data import Sample, Samples, synthetic
from slipstream.infer.engines import ENGINES, Engine, Precision, Recipe
from slipstream.infer.engines.inductor import Inductor
from slipstream.infer.engines.protocol import Profiled
from slipstream.infer.goal import Goal
from slipstream.infer.graph import Graph
from slipstream.infer.importers import Imported
from slipstream.infer.measure import interleave
from slipstream.infer.mixture import Case, Mixture
from slipstream.infer.native.precision import storable
from slipstream.infer.quantize.observe import METHODS, Histogram, Method, observe
from slipstream.infer.report import Candidate, State
from slipstream.infer.rewrites import Applied, optimise
from slipstream.infer.trial import Reference, Trial

Tell = Callable[[str, float], None]

NO_PACKAGE = "a package cannot hold what it makes"
MOST_CALIBRATION = 64
FEW = 8  # samples that are not divided; methods of calibration are compared on as many
NUM_SYNTHETIC = 4
# Shares of the time until which each part may go on.
CALIBRATION_ENDS, CASES_END, MIXING_ENDS, JUDGING_ENDS = 0.3, 0.35, 0.55, 0.7
PARTS_SHARE = 0.7  # of the time for mixtures, in which the noise of each part is measured
MOST_CASES = 64  # samples that judge mixtures


@dataclass(frozen=True)
class Found:
    """What a search found.

    Args:
        recipe: the best one.
        graph: that it runs.
        comparison: of its results with the reference's.
        candidates: all, the chosen one first, then by time.
        applied: what the rewrites did.
        rewritten: the graph after them.
        data: what results were compared on, in words.
        notes: what was left out and why.
    """

    recipe: Recipe
    graph: Graph
    comparison: Comparison
    candidates: tuple[Candidate, ...]
    applied: tuple[Applied, ...]
    rewritten: Graph
    data: str
    notes: tuple[str, ...]


def search(
    imported: Imported,
    goal: Goal,
    samples: Samples | None = None,
    tell: Tell = lambda text, share: None,
) -> Found:
    """Try every engine in every precision that this machine can run, and find the best.

    Args:
        imported: the model.
        goal: what is looked for.
        samples: a quarter of them, 64 at most, calibrate int8, and the others judge it. Without any
            int8 is not tried, and floating point is compared on random inputs.
        tell: called with what is being done, and the share of the time that has passed.

    Raises UsageError where the graph cannot be run at all, UnsupportedError where no candidate
    keeps to the budget; both say why. Blocks for about `goal.seconds`, or less.
    """
    hunt = _Hunt(imported, goal, samples, tell)
    try:
        hunt.try_floats()
        if samples is not None:
            hunt.try_bytes()
            hunt.try_mixtures()
        hunt.judge()
        hunt.time()
        return hunt.found()
    finally:
        hunt.close()


class _Hunt:
    """The state of one search."""

    def __init__(self, imported: Imported, goal: Goal, samples: Samples | None, tell: Tell) -> None:
        self._imported, self._goal, self._tell = imported, goal, tell
        self._begin = time.monotonic()
        self._notes: list[str] = []
        self._untried: list[Candidate] = []
        self._trials: list[Trial] = []
        self._rewritten, self._applied = optimise(imported.graph, without=goal.without)
        self._is_real = samples is not None
        given = synthetic(imported.graph, NUM_SYNTHETIC) if samples is None else samples
        self._calibration, self._judged = _divided(given)
        self._first = self._judged[0].inputs
        self._histograms: dict[str, Histogram] = {}
        self._engines = self._wanted_engines()
        self._reference = Reference(imported.graph, goal.threads, imported.origin)

    # ---- candidates ----------------------------------------------------------------------------

    def _wanted_engines(self) -> list[Engine]:
        """Those that are wanted and there; the others are named among the candidates."""
        wanted = self._goal.engines or tuple(ENGINES)
        strange = sorted(set(wanted) - set(ENGINES))
        if strange:
            raise UsageError(
                f"no engine is called {', '.join(strange)}; there are {', '.join(ENGINES)}"
            )
        found: list[Engine] = []
        for name in wanted:
            engine = Inductor(self._imported.module) if name == "inductor" else ENGINES[name]
            reason = engine.available()
            if reason is None and name == "inductor" and not self._goal.engines:
                reason = f"{NO_PACKAGE}; --engine inductor measures it beside others"
            if reason is None:
                found.append(engine)
            else:
                self._untried.append(Candidate(engine=name, state=State.UNTRIED, reason=reason))
        return found

    def _recipes(self, *precisions: Precision) -> Iterator[tuple[Engine, Recipe]]:
        """Every engine with every precision, graph and number of streams that it should try."""
        threads = self._goal.threads
        several = {1, threads} if self._goal.target == "throughput" else {1}
        for engine in self._engines:
            able = engine.precisions()
            for precision in precisions:
                if precision not in able:
                    continue
                for rewrites in _routes(engine, precision):
                    for streams in sorted(several):
                        recipe = Recipe(
                            engine=engine.name,
                            precision=precision,
                            rewrites=rewrites,
                            streams=streams,
                        )
                        yield engine, recipe

    def _ready(self, engine: Engine, recipe: Recipe, method: str | None = None) -> Trial:
        self._say(f"{recipe.engine} {recipe.precision} is made ready")
        trial = Trial(recipe, method)
        trial.prepare(engine, self._graph(recipe), self._goal.threads, self._first)
        return trial

    def _graph(self, recipe: Recipe) -> Graph:
        return self._rewritten if recipe.rewrites else self._imported.graph

    def try_floats(self) -> None:
        """Make candidates in floating point ready."""
        for engine, recipe in self._recipes("fp32", "bf16"):
            self._trials.append(self._ready(engine, recipe))

    def try_bytes(self) -> None:
        """Make candidates with bytes ready. The first engine that can compute on them finds the
        method of calibration; ranges are the graph's, so the others take the same."""
        for engine, recipe in self._recipes("int8-weights"):
            self._trials.append(self._ready(engine, recipe))
        wanted = list(self._recipes("int8"))
        names = storable(self._rewritten)
        if not wanted or not names:
            return
        self._say("values are observed for int8")
        inputs = [sample.inputs for sample in self._calibration]
        self._histograms = histograms = observe(self._rewritten, inputs, names)
        first: Trial | None = None
        for engine, recipe in wanted:
            if first is None:
                trial = self._calibrated(engine, recipe, histograms)
                first = None if trial.state is State.FAILED else trial
            else:
                same = recipe.model_copy(update={"ranges": first.recipe.ranges})
                trial = self._ready(engine, same, first.method)
            self._trials.append(trial)

    def try_mixtures(self) -> None:
        """Where bytes everywhere are not good enough, leave the values in floating point that cost
        most: by the first engine that has bytes, and the same ones for the others."""
        bytes_ = [trial for trial in self._alive() if trial.recipe.precision == "int8"]
        bytes_.sort(key=lambda trial: not isinstance(trial.executable, Profiled))
        if not bytes_:
            return
        cases = self._reference.answers(
            self._judged, MOST_CASES, lambda: self._share() <= CASES_END
        )
        first = bytes_[0]
        if not self._objections(first, cases):
            return
        engine = next(item for item in self._engines if item.name == first.recipe.engine)
        recipe = first.recipe.model_copy(update={"rest": self._rest(engine, cases)})
        ranges = [_ranges(self._histograms, method) for method in METHODS]
        mixture = Mixture(engine, self._rewritten, recipe, ranges, self._goal.threads, cases)
        seconds = (MIXING_ENDS - self._share()) * self._goal.seconds
        order = mixture.order(max(seconds, 0.0) * PARTS_SHARE, self._say)
        self._say("a mixture of bytes and floats is looked for")
        count = mixture.least(order, lambda found: not self._goal.objection(recipe, found))
        if count == len(order):
            self._notes.append("no mixture of bytes and floating point is good enough")
            return
        for kept in sorted({count, (count + len(order)) // 2}):
            self._add_mixture(mixture.of(order[kept:]))

    def _add_mixture(self, mixed: Recipe) -> None:
        for engine, recipe in list(self._recipes("int8")):
            rest = mixed.rest if "bf16" in engine.precisions() else "fp32"
            update = {"ranges": mixed.ranges, "rest": rest}
            trial = self._ready(engine, recipe.model_copy(update=update), "noise")
            trial.kept = len(self._histograms) - len(mixed.ranges)
            self._trials.append(trial)

    def _objections(self, trial: Trial, cases: Sequence[Case]) -> str:
        """What there is to say against a trial, by its results in some cases."""
        assert trial.executable is not None
        found = Comparison()
        for case in cases:
            found.add(trial.executable.run(case.sample.inputs), case.right, case.sample.labels)
        return self._goal.objection(trial.recipe, found)

    def _rest(self, engine: Engine, cases: Sequence[Case]) -> Precision:
        """bf16 where the engine has it and it is good enough by itself."""
        halves = (t for t in self._alive() if t.recipe.precision == "bf16")
        trial = next((t for t in halves if t.recipe.engine == engine.name), None)
        return "bf16" if trial is not None and not self._objections(trial, cases) else "fp32"

    def _calibrated(
        self, engine: Engine, recipe: Recipe, histograms: Mapping[str, Histogram]
    ) -> Trial:
        """The candidate whose method of calibration gives the best results."""
        few = [self._judged[index] for index in range(min(FEW, len(self._judged)))]
        best = self._ready(engine, _with(recipe, histograms, METHODS[0]), METHODS[0])
        if best.state is State.FAILED:
            return best
        self._reference.compare([best], few)
        for method in METHODS[1:]:
            if self._share() > CALIBRATION_ENDS:
                self._notes.append(f"no time was left to calibrate by {method}")
                continue
            other = self._ready(engine, _with(recipe, histograms, method), method)
            self._reference.compare([other], few)
            if other.comparison.snr_db > best.comparison.snr_db:
                best, other = other, best
            other.close()
        best.comparison = Comparison()
        return best

    # ---- judging and timing --------------------------------------------------------------------

    def judge(self) -> None:
        """Compare all candidates on as many samples as time allows, and reject the bad ones."""
        alive = self._alive()
        self._reference.compare(alive, self._judged, self._may_judge)
        for trial in alive:
            objection = self._goal.objection(trial.recipe, trial.comparison)
            if objection:
                trial.end(State.REJECTED, objection)

    def time(self) -> None:
        """Time those that are left by turns."""
        alive = {str(number): trial for number, trial in enumerate(self._alive())}
        left = self._goal.seconds * (1 - self._share())
        with ThreadPoolExecutor(self._goal.threads) as callers:
            runs = {name: trial.round(self._first, callers) for name, trial in alive.items()}
            timings = interleave(runs, left, tell=lambda share: self._say("candidates are timed"))
        for name, timing in timings.items():
            alive[name].timing = timing
            if alive[name].recipe.engine == "inductor":
                alive[name].state, alive[name].reason = State.COMPARED, NO_PACKAGE

    def found(self) -> Found:
        """The winner and all others."""
        chosen = self._best()
        chosen.state = State.CHOSEN
        order = sorted(self._trials, key=lambda trial: (trial is not chosen, *_place(trial)))
        if not self._is_real:
            self._notes.append(
                "there is no data, so int8 was not tried: it stays in floating point (--data)"
            )
        return Found(
            recipe=chosen.recipe,
            graph=self._graph(chosen.recipe),
            comparison=chosen.comparison,
            candidates=(*(trial.candidate() for trial in order), *self._untried),
            applied=self._applied,
            rewritten=self._rewritten,
            data=self._data(chosen.comparison),
            notes=tuple(self._notes),
        )

    def close(self) -> None:
        """Give back all that was made ready."""
        self._reference.close()
        for trial in self._trials:
            trial.close()

    def _alive(self) -> list[Trial]:
        return [trial for trial in self._trials if trial.executable is not None]

    def _best(self) -> Trial:
        right = [trial for trial in self._alive() if trial.state is State.MEASURED]
        if not right:
            tried = (*(trial.candidate() for trial in self._trials), *self._untried)
            reasons = "; ".join(f"{item.title}: {item.reason}" for item in tried)
            raise UnsupportedError(
                f"no candidate can be chosen for {self._imported.origin}: {reasons}"
            )
        if self._goal.target == "memory":
            return min(right, key=lambda trial: (trial.weights_bytes, trial.seconds))
        return min(right, key=lambda trial: trial.seconds)

    def _data(self, comparison: Comparison) -> str:
        if not self._is_real:
            return f"{comparison.samples} random inputs, as there is no data"
        labels = f" with {comparison.labelled} labels" if comparison.labelled else ""
        number = len(self._calibration)
        if isinstance(self._judged, _Rest):
            return f"{comparison.samples} samples{labels}; {number} others calibrated int8"
        return (
            f"{comparison.samples} samples{labels}, which are so few that they calibrated int8 too"
        )

    def _may_judge(self, index: int) -> bool:
        self._say(f"results are compared: sample {index + 1} of {len(self._judged)}")
        return self._share() <= JUDGING_ENDS

    def _share(self) -> float:
        return (time.monotonic() - self._begin) / self._goal.seconds

    def _say(self, text: str) -> None:
        self._tell(text, min(self._share(), 1.0))


@dataclass(frozen=True)
class _Rest:
    """Samples from a number on."""

    samples: Samples
    first: int

    def __len__(self) -> int:
        return len(self.samples) - self.first

    def __getitem__(self, index: int) -> Sample:
        return self.samples[self.first + index]


def _divided(samples: Samples) -> tuple[Sequence[Sample], Samples]:
    """Samples that calibrate, and those that judge; all do both where they are few."""
    count = len(samples)
    if count < FEW:
        return [samples[index] for index in range(count)], samples
    first = min(count // 4, MOST_CALIBRATION)
    return [samples[index] for index in range(first)], _Rest(samples, first)


def _routes(engine: Engine, precision: Precision) -> tuple[bool, ...]:
    """Of the rewritten graph and the one imported, those that are worth a try."""
    if engine.name == "inductor":
        return (False,)
    if engine.name == "native" or precision in ("int8", "int8-weights"):
        return (True,)
    return (True, False)


def _ranges(histograms: Mapping[str, Histogram], method: Method) -> dict[str, tuple[float, float]]:
    return {name: histogram.range(method) for name, histogram in histograms.items()}


def _with(recipe: Recipe, histograms: Mapping[str, Histogram], method: Method) -> Recipe:
    return recipe.model_copy(update={"ranges": _ranges(histograms, method)})


def _place(trial: Trial) -> tuple[bool, float]:
    return trial.timing is None, 0.0 if trial.timing is None else trial.seconds
