"""The autotuner: it prepares every candidate, compares its results (see `judging`) and times it.

Candidates whose results keep to the budget are timed in alternation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from slipstream.errors import UnsupportedError
from slipstream.infer.accuracy.accuracy import ENOUGH
from slipstream.infer.accuracy.division import Division
from slipstream.infer.accuracy.reference import Reference
from slipstream.infer.data import Sample, Samples, synthetic
from slipstream.infer.engines import ENGINES, Engine, Precision, Recipe, engine_of
from slipstream.infer.engines.modules import NO_GPU
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.spilled import spilled
from slipstream.infer.importers import Imported
from slipstream.infer.machine import give_memory_back
from slipstream.infer.measure import LEAST_CALLS, interleave
from slipstream.infer.package.report import Candidate, State
from slipstream.infer.rewrites import optimise
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.time_limit import TimeLimit
from slipstream.infer.search.trial import Trial

Tell = Callable[[str, float], None]

NO_PACKAGE = "a package cannot hold what it makes"
NO_TIME = "no time was left"
NUM_SYNTHETIC = 4
LEARNING_ENDS = 0.05  # of the time: how large outputs are is known by then
READY_ENDS = 0.5  # of the time: then nothing else is made ready
LEAST_TIMING = 0.1  # of the time: what was judged late is timed all the same


class Autotuner:
    """The candidates of one search, with the methods that prepare, time and choose them."""

    def __init__(
        self,
        imported: Imported,
        objective: Objective,
        samples: Samples | None,
        tell: Tell,
        limit: TimeLimit | None = None,
    ) -> None:
        """See `search`."""
        self.imported, self.objective, self._tell = imported, objective, tell
        self.limit = limit or TimeLimit(objective.seconds)
        self._ready_seconds: dict[str, float] = {}  # the longest of each engine
        self._notes: list[str] = []
        self._untried: list[Candidate] = []
        self._trials: list[Trial] = []
        self.weights_bytes = sum(array.nbytes for array in imported.graph.constants.values())
        self.rewritten, self.applied = optimise(imported.graph, without=objective.without)
        if self.is_large:
            self.rewritten = spilled(self.rewritten, imported.graph)
            give_memory_back()
        self.is_real = samples is not None
        given = synthetic(imported.graph, NUM_SYNTHETIC) if samples is None else samples
        self.samples = Division.of(given)
        self.calibrated = 0  # samples by which ranges were found
        self.first = self.samples.judged[0].inputs
        self.engines = self._wanted_engines()
        self.reference = Reference(imported.graph, objective.threads, imported.origin)
        self.reference.learn(
            self._first_samples(), is_classifier=imported.is_classifier, clock=self.limit.clock
        )

    def _first_samples(self) -> Iterator[Sample]:
        """Yield a few samples, at least one, from which the magnitude of the outputs is learnt."""
        known = self.samples.calibration if len(self.samples.calibration) else self.samples.judged
        for index in range(min(ENOUGH, len(known))):
            if index and self.share() > LEARNING_ENDS:
                break
            self.say(f"results are looked at: sample {index + 1}")
            yield known[index]

    # ---- candidates ----------------------------------------------------------------------------

    def _wanted_engines(self) -> list[Engine]:
        """Return the requested engines that are installed; the others become untried."""
        wanted = self.objective.engines or tuple(ENGINES)
        found: list[Engine] = []
        for name in wanted:
            engine = engine_of(name, self.objective.large_bytes)
            module = self.imported.module
            if not self.objective.engines:  # nobody is going to call it
                module = self.imported.is_module or None
            engine = engine.with_module(module)
            reason = engine.available()
            if reason is None and not engine.is_packable and not self.objective.engines:
                reason = f"{NO_PACKAGE}; --engine {name} measures it beside others"
            if reason is None:
                found.append(engine)
            elif self.objective.engines or reason != NO_GPU:  # few have one
                self._untried.append(Candidate(engine=name, state=State.UNTRIED, reason=reason))
        return found

    def recipes(self, *precisions: Precision) -> Iterator[tuple[Engine, Recipe]]:
        """Yield each engine with a recipe for every precision, graph and number of streams."""
        threads = self.objective.threads
        several = {1, threads} if self.objective.target == "throughput" else {1}
        for engine in self.engines:
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

    def by_graph(self, *precisions: Precision) -> list[tuple[Engine, Recipe]]:
        """Return `recipes`, with the rewritten graph first, so that each engine has its turn."""
        return sorted(self.recipes(*precisions), key=lambda item: not item[1].rewrites)

    def ready(
        self, engine: Engine, recipe: Recipe, method: str | None = None, end: float = READY_ENDS
    ) -> Trial:
        """Prepare a candidate; if that fails, the candidate carries the reason.

        It is not tried if others are ready and its preparation would not be done when a share
        `end` of the time has passed.
        """
        trial = Trial(recipe, method, comparison=self.reference.comparison())
        needed = self.ready_seconds(engine.name)
        if self.alive() and not self.limit.fits("make all candidates ready", needed, end):
            trial.end(State.UNTRIED, f"{NO_TIME} to make it ready")
            return trial
        begin = self.limit.clock()
        self.say(f"{recipe.engine} {recipe.precision} is made ready")
        trial.prepare(engine, self.graph(recipe), self.objective.threads, self.first)
        if self.is_large:
            give_memory_back()
        took = self.limit.clock() - begin
        self._ready_seconds[engine.name] = max(took, self._ready_seconds.get(engine.name, 0.0))
        return trial

    def ready_seconds(self, engine: str) -> float:
        """Return the seconds that an engine takes to prepare a candidate.

        This is its longest preparation so far, or the shortest of the other engines if it has
        prepared none.
        """
        least = min(self._ready_seconds.values(), default=0.0)
        return self._ready_seconds.get(engine, least)

    def graph(self, recipe: Recipe) -> Graph:
        """Return the graph that a recipe runs."""
        return self.rewritten if recipe.rewrites else self.imported.graph

    def time(self, trials: Sequence[Trial], end: float) -> None:
        """Time trials in alternation until a share `end` of the time has passed.

        If there is no time for all, the fastest are timed: as many as can have the least number
        of rounds.
        """
        left = max(self.limit.left(end), self.objective.seconds * LEAST_TIMING)
        alive = {str(number): trial for number, trial in enumerate(self._timeable(trials, left))}
        with ThreadPoolExecutor(self.objective.threads) as callers:
            runs = {name: trial.round(self.first, callers) for name, trial in alive.items()}
            timings = interleave(
                runs,
                left,
                most_rounds=self.objective.most_rounds,
                tell=lambda share: self.say("candidates are timed"),
            )
        for name, timing in timings.items():
            alive[name].timing = timing
            if not engine_of(alive[name].recipe.engine).is_packable:
                alive[name].state, alive[name].reason = State.COMPARED, NO_PACKAGE

    def _timeable(self, trials: Sequence[Trial], left: float) -> list[Trial]:
        order = sorted(trials, key=lambda trial: trial.run_seconds)
        for count, trial in enumerate(order):
            left -= LEAST_CALLS * trial.run_seconds
            if count and left < 0:
                trial.end(State.UNTRIED, f"{NO_TIME} to time it")
                needed = LEAST_CALLS * trial.run_seconds
                self.limit.cut("time all candidates", needed)
        return [trial for trial in trials if trial.executable is not None]

    def close(self) -> None:
        """Close every candidate and the reference."""
        self.reference.close()
        for trial in self._trials:
            trial.close()

    @property
    def is_large(self) -> bool:
        """Whether the model is so large that one candidate is open at a time; see `one_by_one`."""
        return self.weights_bytes >= self.objective.large_bytes

    def add(self, trial: Trial) -> None:
        """Enter a candidate among those of this search."""
        self._trials.append(trial)

    def note(self, text: str) -> None:
        """Add a sentence to the report's notes: a step that was left out, and the reason."""
        self._notes.append(text)

    def notes(self) -> tuple[str, ...]:
        """Return the notes of this search, then those of its time limit."""
        return (*self._notes, *self.limit.notes())

    def candidates(self, chosen: Trial) -> tuple[Candidate, ...]:
        """Return all candidates for the report: the chosen one, the others by time, the untried."""
        order = sorted(self._trials, key=lambda trial: (trial is not chosen, *_order(trial)))
        return (*(trial.candidate() for trial in order), *self._untried)

    def alive(self) -> list[Trial]:
        """Return the candidates that are open, or were closed after judging and timing."""
        return [trial for trial in self._trials if trial.is_alive]

    def reopen(self, trial: Trial) -> None:
        """Prepare a closed candidate again; an error ends it."""
        if trial.executable is None:
            engine = engine_of(trial.recipe.engine, self.objective.large_bytes)
            trial.prepare(engine, self.graph(trial.recipe), self.objective.threads, self.first)

    def best(self) -> Trial:
        """Return the best measured candidate; raise UnsupportedError if there is none."""
        right = [trial for trial in self.alive() if trial.state is State.MEASURED]
        if not right:
            tried = (*(trial.candidate() for trial in self._trials), *self._untried)
            reasons = "; ".join(f"{item.title}: {item.reason}" for item in tried)
            raise UnsupportedError(
                f"no candidate can be chosen for {self.imported.origin}: {reasons}"
            )
        if self.objective.target == "memory":
            return min(right, key=lambda trial: (trial.weights_bytes, trial.seconds))
        return min(right, key=lambda trial: trial.seconds)

    def share(self) -> float:
        """Return the share of the time that has passed; it is above 1 when the time is over."""
        return self.limit.share()

    def say(self, text: str) -> None:
        """Report the current step, and the share of the time that has passed."""
        self.limit.begin(text.partition(":")[0])
        self._tell(text, min(self.share(), 1.0))


def _order(trial: Trial) -> tuple[bool, float]:
    return trial.timing is None, 0.0 if trial.timing is None else trial.seconds


def _routes(engine: Engine, precision: Precision) -> tuple[bool, ...]:
    """Return whether to try the rewritten graph (True), the imported one (False), or both."""
    if not engine.runs_rewritten:
        return (False,)
    if not engine.runs_imported or precision.startswith("int8"):
        return (True,)
    return (True, False)
