"""The contest of candidates: each is made ready, judged by its results (see `judging`), and timed.

Those that keep to the budget are timed by turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import ENOUGH
from slipstream.infer.accuracy.division import Division
from slipstream.infer.accuracy.reference import Reference
from slipstream.infer.data import Sample, Samples, synthetic
from slipstream.infer.engines import ENGINES, Engine, Precision, Recipe, engine_of
from slipstream.infer.engines.inductor import Inductor
from slipstream.infer.engines.modules import NO_GPU
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.spilled import spilled
from slipstream.infer.importers import Imported
from slipstream.infer.machine import give_memory_back
from slipstream.infer.measure import LEAST_CALLS, interleave
from slipstream.infer.package.report import Candidate, State
from slipstream.infer.rewrites import optimise
from slipstream.infer.search.goal import Goal
from slipstream.infer.search.time_limit import TimeLimit
from slipstream.infer.search.trial import Trial

Tell = Callable[[str, float], None]

NO_PACKAGE = "a package cannot hold what it makes"
NO_TIME = "no time was left"
NUM_SYNTHETIC = 4
LEARNING_ENDS = 0.05  # of the time: how large outputs are is known by then
READY_ENDS = 0.5  # of the time: then nothing else is made ready
LEAST_TIMING = 0.1  # of the time: what was judged late is timed all the same


class Contest:
    """All candidates of one search, and what they go through."""

    def __init__(
        self,
        imported: Imported,
        goal: Goal,
        samples: Samples | None,
        tell: Tell,
        limit: TimeLimit | None = None,
    ) -> None:
        """See `search`."""
        self.imported, self.goal, self._tell = imported, goal, tell
        self.limit = limit or TimeLimit(goal.seconds)
        self._ready_seconds: dict[str, float] = {}  # the longest of each engine
        self.notes: list[str] = []
        self.untried: list[Candidate] = []
        self.trials: list[Trial] = []
        self.weights_bytes = sum(array.nbytes for array in imported.graph.constants.values())
        self.rewritten, self.applied = optimise(imported.graph, without=goal.without)
        if self.is_large:
            self.rewritten = spilled(self.rewritten, imported.graph)
            give_memory_back()
        self.is_real = samples is not None
        given = synthetic(imported.graph, NUM_SYNTHETIC) if samples is None else samples
        self.samples = Division.of(given)
        self.calibrated = 0  # samples by which ranges were found
        self.first = self.samples.judged[0].inputs
        self.engines = self._wanted_engines()
        self.reference = Reference(imported.graph, goal.threads, imported.origin)
        self.reference.learn(
            self._first_samples(), is_classifier=goal.is_classifier, clock=self.limit.clock
        )

    def _first_samples(self) -> Iterator[Sample]:
        """A few, one at least, which tell how large the numbers of the outputs are."""
        known = self.samples.calibration if len(self.samples.calibration) else self.samples.judged
        for index in range(min(ENOUGH, len(known))):
            if index and self.share() > LEARNING_ENDS:
                break
            self.say(f"results are looked at: sample {index + 1}")
            yield known[index]

    # ---- candidates ----------------------------------------------------------------------------

    def _wanted_engines(self) -> list[Engine]:
        """Those that are wanted and there; the others are named among the candidates."""
        wanted = self.goal.engines or tuple(ENGINES)
        strange = sorted(set(wanted) - set(ENGINES))
        if strange:
            raise UsageError(
                f"no engine is called {', '.join(strange)}; there are {', '.join(ENGINES)}"
            )
        found: list[Engine] = []
        for name in wanted:
            engine = engine_of(name, self.goal.large_bytes)
            if isinstance(engine, Inductor):
                module = self.imported.module
                if not self.goal.engines:  # nobody is going to call it
                    module = self.imported.is_module or None
                engine = replace(engine, module=module)
            reason = engine.available()
            if reason is None and isinstance(engine, Inductor) and not self.goal.engines:
                reason = f"{NO_PACKAGE}; --engine {name} measures it beside others"
            if reason is None:
                found.append(engine)
            elif self.goal.engines or reason != NO_GPU:  # few have one
                self.untried.append(Candidate(engine=name, state=State.UNTRIED, reason=reason))
        return found

    def recipes(self, *precisions: Precision) -> Iterator[tuple[Engine, Recipe]]:
        """Every engine with every precision, graph and number of streams that it should try."""
        threads = self.goal.threads
        several = {1, threads} if self.goal.target == "throughput" else {1}
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
        """The same, those on the rewritten graph first, so that each engine has its turn."""
        return sorted(self.recipes(*precisions), key=lambda item: not item[1].rewrites)

    def ready(
        self, engine: Engine, recipe: Recipe, method: str | None = None, end: float = READY_ENDS
    ) -> Trial:
        """A candidate, made ready; what went wrong is its reason. It is not tried where others are
        ready and more than a share `end` of the time has passed."""
        trial = Trial(recipe, method, comparison=self.reference.comparison())
        needed = self.ready_seconds(engine.name)
        if self.alive() and not self.limit.fits("make all candidates ready", needed, end):
            trial.end(State.UNTRIED, f"{NO_TIME} to make it ready")
            return trial
        begin = self.limit.clock()
        self.say(f"{recipe.engine} {recipe.precision} is made ready")
        trial.prepare(engine, self.graph(recipe), self.goal.threads, self.first)
        if self.is_large:
            give_memory_back()
        took = self.limit.clock() - begin
        self._ready_seconds[engine.name] = max(took, self._ready_seconds.get(engine.name, 0.0))
        return trial

    def ready_seconds(self, engine: str) -> float:
        """Seconds that an engine takes to make a candidate ready: the longest so far, or the least
        of the others where it made none."""
        least = min(self._ready_seconds.values(), default=0.0)
        return self._ready_seconds.get(engine, least)

    def graph(self, recipe: Recipe) -> Graph:
        """The graph that a recipe runs."""
        return self.rewritten if recipe.rewrites else self.imported.graph

    def time(self, trials: Sequence[Trial], end: float) -> None:
        """Time trials by turns, until a share of the time has passed: the fastest ones, as many as
        can have the least number of rounds."""
        left = max(self.limit.left(end), self.goal.seconds * LEAST_TIMING)
        alive = {str(number): trial for number, trial in enumerate(self._timeable(trials, left))}
        with ThreadPoolExecutor(self.goal.threads) as callers:
            runs = {name: trial.round(self.first, callers) for name, trial in alive.items()}
            timings = interleave(
                runs,
                left,
                most_rounds=self.goal.most_rounds,
                tell=lambda share: self.say("candidates are timed"),
            )
        for name, timing in timings.items():
            alive[name].timing = timing
            if isinstance(engine_of(alive[name].recipe.engine), Inductor):
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
        """Give back all that was made ready."""
        self.reference.close()
        for trial in self.trials:
            trial.close()

    @property
    def is_large(self) -> bool:
        """Whether candidates are open one at a time; see `one_by_one`."""
        return self.weights_bytes >= self.goal.large_bytes

    def alive(self) -> list[Trial]:
        """Those that are open, or were closed after they had been judged and timed."""
        return [trial for trial in self.trials if trial.is_alive]

    def reopen(self, trial: Trial) -> None:
        """Make a candidate ready again that was closed; what goes wrong ends it."""
        if trial.executable is None:
            engine = engine_of(trial.recipe.engine, self.goal.large_bytes)
            trial.prepare(engine, self.graph(trial.recipe), self.goal.threads, self.first)

    def best(self) -> Trial:
        """Of those that were measured; UnsupportedError where there is none."""
        right = [trial for trial in self.alive() if trial.state is State.MEASURED]
        if not right:
            tried = (*(trial.candidate() for trial in self.trials), *self.untried)
            reasons = "; ".join(f"{item.title}: {item.reason}" for item in tried)
            raise UnsupportedError(
                f"no candidate can be chosen for {self.imported.origin}: {reasons}"
            )
        if self.goal.target == "memory":
            return min(right, key=lambda trial: (trial.weights_bytes, trial.seconds))
        return min(right, key=lambda trial: trial.seconds)

    def share(self) -> float:
        """Of the time that has passed; above 1 when it is over."""
        return self.limit.share()

    def say(self, text: str) -> None:
        """Tell what is being done."""
        self.limit.begin(text.partition(":")[0])
        self._tell(text, min(self.share(), 1.0))


def _routes(engine: Engine, precision: Precision) -> tuple[bool, ...]:
    """Of the rewritten graph and the one imported, those that are worth a try."""
    if isinstance(engine, Inductor):
        return (False,)
    if engine.name == "native" or precision.startswith("int8"):
        return (True,)
    return (True, False)
