"""The autotuner prepares every candidate, compares its outputs (see `judging`) and times it.

A candidate is an engine with a recipe. Candidates whose outputs are accurate enough are timed in
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from slipstream.errors import UnsupportedError
from slipstream.infer.accuracy.accuracy import ENOUGH
from slipstream.infer.engines import Engine, Precision, Recipe
from slipstream.infer.machine import give_memory_back
from slipstream.infer.measure import LEAST_CALLS, interleave
from slipstream.infer.package.report import Candidate, State
from slipstream.infer.samples import Sample
from slipstream.infer.search.context import NO_PACKAGE, SearchContext
from slipstream.infer.search.trial import Trial

Tell = Callable[[str, float], None]

NO_TIME = "no time was left"
# Shares of the search time: the time at which the magnitude of the outputs must be known, the time
# until which candidates are prepared, and the least time for timing candidates, even if they were
# judged late. Chosen by hand, not measured.
LEARNING_ENDS, READY_ENDS, LEAST_TIMING = 0.05, 0.5, 0.1


class Autotuner:
    """The candidates of one search, with the methods that prepare, time and choose candidates.

    Args:
        context: Model, objective, samples, engines and reference of the search.
        tell: Function that is called with the current step, and with the share of the search time
            that has passed, 0 to 1.
    """

    def __init__(self, context: SearchContext, tell: Tell) -> None:
        self._context = context
        self._tell = tell
        self._trials: list[Trial] = []
        self._notes: list[str] = []
        self._num_calibrated = 0
        self._longest_preparations: dict[str, float] = {}  # seconds, by the engine's name

    @property
    def context(self) -> SearchContext:
        """The facts of the search that do not change."""
        return self._context

    @property
    def num_calibrated(self) -> int:
        """Number of samples from which the ranges of int8 were found; 0 without calibration."""
        return self._num_calibrated

    def set_calibrated(self, count: int) -> None:
        """Record the number of samples from which the ranges of int8 were found."""
        self._num_calibrated = count

    # ---- samples -------------------------------------------------------------------------------

    def learn(self) -> None:
        """Run the reference on a few samples, to learn the magnitudes of its outputs."""
        context = self._context
        context.reference.learn(
            self._first_samples(),
            is_classifier=context.imported.is_classifier,
            clock=context.limit.clock,
        )

    def _first_samples(self) -> Iterator[Sample]:
        """Yield one sample, and more until the share `LEARNING_ENDS` of the time has passed."""
        division = self._context.samples
        samples = division.calibration if len(division.calibration) else division.judged
        for index in range(min(ENOUGH, len(samples))):
            if index and self.share() > LEARNING_ENDS:
                break
            self.say(f"outputs are looked at: sample {index + 1}")
            yield samples[index]

    # ---- candidates ----------------------------------------------------------------------------

    def recipes(self, *precisions: Precision) -> Iterator[tuple[Engine, Recipe]]:
        """Yield pairs (engine, recipe): one for every precision, graph and number of streams."""
        objective = self._context.objective
        is_latency = objective.target != "throughput"
        for engine in self._context.engines:
            streams = {1} if is_latency else {1, engine.overlapped_runs or objective.threads}
            available = engine.precisions()
            for precision in precisions:
                if precision not in available:
                    continue
                for rewrites in _routes(engine, precision):
                    for count in sorted(streams):
                        recipe = Recipe(
                            engine=engine.name,
                            precision=precision,
                            rewrites=rewrites,
                            streams=count,
                        )
                        yield engine, recipe

    def by_graph(self, *precisions: Precision) -> list[tuple[Engine, Recipe]]:
        """Return the pairs of `recipes`; the recipes for the rewritten graph come first.

        So engines are tried on the rewritten graph before time is spent on the imported graph.
        """
        return sorted(self.recipes(*precisions), key=lambda item: not item[1].rewrites)

    def ready(
        self, engine: Engine, recipe: Recipe, method: str | None = None, end: float = READY_ENDS
    ) -> Trial:
        """Prepare a candidate and return it; after a failure, `Trial.reason` says why.

        The candidate is not tried if another candidate is ready, and the preparation would last
        beyond the share `end` of the search time.
        """
        context = self._context
        trial = Trial(engine, recipe, method, comparison=context.reference.comparison())
        needed = self.ready_seconds(engine.name)
        if self.alive() and not context.limit.fits("make all candidates ready", needed, end):
            trial.end(State.UNTRIED, f"{NO_TIME} to make it ready")
            return trial
        begin = context.limit.clock()
        self.say(f"{recipe.engine} {recipe.precision} is made ready")
        self._prepare(trial)
        if context.is_large:
            give_memory_back()
        seconds = context.limit.clock() - begin
        longest = self._longest_preparations.get(engine.name, 0.0)
        self._longest_preparations[engine.name] = max(seconds, longest)
        return trial

    def ready_seconds(self, engine: str) -> float:
        """Return the expected time in seconds for an engine to prepare a candidate.

        The result is the time of the engine's longest preparation so far. For an engine that has
        prepared no candidate, the result is the least of these times over the other engines.
        """
        shortest = min(self._longest_preparations.values(), default=0.0)
        return self._longest_preparations.get(engine, shortest)

    def reopen(self, trial: Trial) -> None:
        """Prepare a closed candidate again; if the preparation fails, record the reason."""
        if trial.executable is None:
            self._prepare(trial)

    def _prepare(self, trial: Trial) -> None:
        context = self._context
        graph = context.graph(trial.recipe)
        trial.prepare(graph, context.objective.threads, context.first_inputs)

    def add(self, trial: Trial) -> None:
        """Add a candidate to this search."""
        self._trials.append(trial)

    def alive(self) -> list[Trial]:
        """Return the candidates that are prepared, or that were closed after they were timed."""
        return [trial for trial in self._trials if trial.is_alive]

    def best(self) -> Trial:
        """Return the best measured candidate; raise UnsupportedError if there is none."""
        measured = [trial for trial in self.alive() if trial.state is State.MEASURED]
        if not measured:
            candidates = (*(trial.candidate() for trial in self._trials), *self._context.untried)
            reasons = "; ".join(f"{item.title}: {item.reason}" for item in candidates)
            raise UnsupportedError(
                f"no candidate can be chosen for {self._context.imported.origin}: {reasons}"
            )
        if self._context.objective.target == "memory":
            return min(measured, key=lambda trial: (trial.weights_bytes, trial.seconds))
        return min(measured, key=lambda trial: trial.seconds)

    def close(self) -> None:
        """Close every candidate and the reference."""
        self._context.reference.close()
        for trial in self._trials:
            trial.close()

    # ---- timing --------------------------------------------------------------------------------

    def time(self, trials: Sequence[Trial], end: float) -> None:
        """Time candidates alternately until the share `end` of the search time has passed.

        If the time does not suffice for all candidates, only the fastest candidates are timed, so
        that each timed candidate has enough rounds.
        """
        context, objective = self._context, self._context.objective
        seconds = max(context.limit.left(end), objective.seconds * LEAST_TIMING)
        timed = {str(at): trial for at, trial in enumerate(self._timeable(trials, seconds))}
        most_streams = max((trial.recipe.streams for trial in timed.values()), default=1)
        with ThreadPoolExecutor(most_streams) as callers:
            runs = {key: trial.round(context.first_inputs, callers) for key, trial in timed.items()}
            timings = interleave(
                runs,
                seconds,
                most_rounds=objective.most_rounds,
                tell=lambda share: self.say("candidates are timed"),
            )
        for key, timing in timings.items():
            timed[key].timing = timing
            if not timed[key].engine.is_packable:
                timed[key].state, timed[key].reason = State.COMPARED, NO_PACKAGE

    def _timeable(self, trials: Sequence[Trial], seconds: float) -> list[Trial]:
        """Return the candidates that can be timed in `seconds`.

        The others are closed, and the report lists them as untried.
        """
        for count, trial in enumerate(sorted(trials, key=lambda trial: trial.run_seconds)):
            needed = LEAST_CALLS * trial.run_seconds
            seconds -= needed
            if count and seconds < 0:
                trial.end(State.UNTRIED, f"{NO_TIME} to time it")
                self._context.limit.cut("time all candidates", needed)
        return [trial for trial in trials if trial.executable is not None]

    def share(self) -> float:
        """Return the share of the search time that has passed (above 1 after its end)."""
        return self._context.limit.share()

    # ---- report --------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Report the current step, and the share of the search time that has passed."""
        self._context.limit.begin(text.partition(":")[0])
        self._tell(text, min(self.share(), 1.0))

    def note(self, text: str) -> None:
        """Add a sentence to the report's notes: a step that was left out, and the reason."""
        self._notes.append(text)

    def notes(self) -> tuple[str, ...]:
        """Return the notes of this search, then the notes of its time limit."""
        return (*self._notes, *self._context.limit.notes())

    def candidates(self, chosen: Trial) -> tuple[Candidate, ...]:
        """Return all candidates for the report.

        The chosen candidate comes first, then the others, sorted by time, then untried engines.
        """
        order = sorted(self._trials, key=lambda trial: (trial is not chosen, *_order(trial)))
        return (*(trial.candidate() for trial in order), *self._context.untried)


def _order(trial: Trial) -> tuple[bool, float]:
    return trial.timing is None, 0.0 if trial.timing is None else trial.seconds


def _routes(engine: Engine, precision: Precision) -> tuple[bool, ...]:
    """Return on which graphs to try an engine.

    True stands for the rewritten graph, and False for the imported graph.
    """
    if not engine.runs_rewritten:
        return (False,)
    if not engine.runs_imported or precision.startswith("int8"):
        return (True,)
    return (True, False)
