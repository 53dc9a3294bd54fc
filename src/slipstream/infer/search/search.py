"""The search for the engine, precision and graph that run a model best on this machine.

The outputs of every candidate are compared with those of the imported graph, which ONNX Runtime
runs in float32 without optimisations. Candidates that keep to the budget are timed in alternation,
and the best one is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.accuracy.promise import Accuracy, accuracy_of, chance_note
from slipstream.infer.data import Samples
from slipstream.infer.engines import ENGINES, FLOATS, Recipe, engine_of
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers import Imported
from slipstream.infer.measure import LEAST_CALLS
from slipstream.infer.package.report import Candidate, Segment, State
from slipstream.infer.rewrites import Applied
from slipstream.infer.search.autotuner import Autotuner, Tell
from slipstream.infer.search.byte_candidates import add_bytes, add_mixtures
from slipstream.infer.search.judging import against_bytes, confirmed, judge
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.one_by_one import try_each
from slipstream.infer.search.segments import SegmentContender, best_parts, measure_segments
from slipstream.infer.search.speed_ups import measure_speed_ups
from slipstream.infer.search.time_limit import TimeLimit
from slipstream.infer.search.trial import Trial

# Shares of the search time at which each step must end. Chosen by hand, not measured.
TIMING_ENDS, SEGMENTS_END, CONFIRMING_ENDS = 0.77, 0.84, 0.92
# Largest ratio of the parts' summed time to the best whole candidate's at which they are tried.
# Chosen by hand, not measured.
GAIN = 0.98


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Args:
        recipe: Recipe of the chosen candidate.
        graph: Graph that the recipe runs.
        comparison: Difference between its outputs and the reference's, on the judging samples.
        accuracy: Promised accuracy, measured on samples that had no part in the choice, if any.
        candidates: All candidates, the chosen one first, then by time.
        applied: Matches and saved nodes of each rewrite.
        speed_ups: Seconds per call that each rewrite saves, by its name; only measured rewrites.
        segments: Times of the model's parts.
        rewritten: Graph after the rewrites.
        notes: Steps that were left out, with the reasons.
    """

    recipe: Recipe
    graph: Graph
    comparison: Comparison
    accuracy: Accuracy
    candidates: tuple[Candidate, ...]
    applied: tuple[Applied, ...]
    speed_ups: Mapping[str, float]
    segments: tuple[Segment, ...]
    rewritten: Graph
    notes: tuple[str, ...]


def search(
    imported: Imported,
    objective: Objective,
    samples: Samples | None = None,
    tell: Tell = lambda text, share: None,
    limit: TimeLimit | None = None,
) -> SearchResult:
    """Try every engine in every precision that this machine can run, and find the best.

    Args:
        imported: the model.
        objective: Objective of the search and its limits.
        samples: a quarter of them, 64 at most, calibrates int8, a quarter is held out to tell how
            good the chosen one is, and the others judge. Of less than 16 int8 is not tried; without
            any, floating point is compared on random inputs.
        tell: called with what is being done, and the share of the time that has passed.
        limit: the time that it may take, default `objective.seconds` from now on.

    Raises UsageError where the graph cannot be run at all, UnsupportedError where no candidate
    keeps to the budget; both say why. Blocks for about `objective.seconds`, or less. A step whose
    expected time does not fit is left out, and a note says so.
    """
    tuner = Autotuner(imported, objective, samples, tell, limit)
    try:
        if tuner.is_large:
            try_each(tuner, with_bytes=samples is not None)
            return _found(tuner, confirmed(tuner, CONFIRMING_ENDS), [])
        for engine, recipe in tuner.by_graph(*FLOATS):
            tuner.add(tuner.ready(engine, recipe))
        if samples is not None:
            _add_candidates_of_bytes(tuner)
        judge(tuner, tuner.alive())
        tuner.time(tuner.alive(), TIMING_ENDS)
        segments = _add_parts(tuner)
        return _found(tuner, confirmed(tuner, CONFIRMING_ENDS), segments)
    finally:
        tuner.close()


def _add_candidates_of_bytes(tuner: Autotuner) -> None:
    """Add candidates in bytes, if samples and time suffice to measure their accuracy."""
    reason = against_bytes(tuner)
    if reason:
        tuner.note(f"it stays in floating point: {reason}")
    else:
        add_mixtures(tuner, add_bytes(tuner, tuner.add))


def _add_parts(tuner: Autotuner) -> list[Segment]:
    """Time parts of the model on each engine, and try the fastest engines of all parts together."""
    best = tuner.best()
    contenders = _contenders(tuner)
    if len(contenders) < 2 or tuner.objective.target != "latency":
        return []
    making = sum(tuner.ready_seconds(item.engine.name) for item in contenders)
    timing = LEAST_CALLS * sum(trial.run_seconds for trial in tuner.alive())
    if not tuner.limit.fits("time the model in parts", making + timing, SEGMENTS_END):
        return []
    left = tuner.limit.left(SEGMENTS_END)
    threads, rounds = tuner.objective.threads, tuner.objective.most_rounds
    segments = measure_segments(
        tuner.rewritten, contenders, threads, tuner.first, left, tuner.say, rounds
    )
    promised = sum(min(item.ms.values()) for item in segments) / 1e3
    if not segments or promised > GAIN * best.seconds:
        return segments
    parts = best_parts(segments, contenders)
    trial = Trial(parts, comparison=tuner.reference.comparison())
    if not trial.recipe.parts or not tuner.limit.fits("try the best parts together", making):
        return segments
    tuner.say("the best parts are made ready together")
    trial.prepare(engine_of(trial.recipe.engine), tuner.rewritten, threads, tuner.first)
    tuner.add(trial)
    if trial.executable is not None:
        judge(tuner, [trial], 1.0)
    if trial.executable is not None:
        tuner.time([best, trial], 1.0)
    return segments


def _contenders(tuner: Autotuner) -> list[SegmentContender]:
    """Return the fastest candidate of each engine, the fastest engine first."""
    able = [
        trial
        for trial in tuner.alive()
        if trial.state is State.MEASURED and trial.recipe.rewrites and trial.recipe.streams == 1
    ]
    able.sort(key=lambda trial: trial.seconds)
    first = {trial.recipe.engine: trial for trial in reversed(able)}
    return [
        SegmentContender(trial.candidate().title, ENGINES[trial.recipe.engine], trial.recipe)
        for trial in sorted(first.values(), key=lambda trial: trial.seconds)
    ]


def _found(tuner: Autotuner, chosen: Trial, segments: list[Segment]) -> SearchResult:
    """Return the result: the chosen candidate, and the report of all others."""
    chosen.state = State.CHOSEN
    speed_ups = {} if tuner.is_large else measure_speed_ups(tuner, chosen, tuner.applied)
    warning = chance_note(chosen.comparison)
    if warning:
        tuner.note(warning)
    if not tuner.is_real:
        tuner.note("there is no data, so int8 was not tried: it stays in floating point (--data)")
    return SearchResult(
        recipe=chosen.recipe,
        graph=tuner.graph(chosen.recipe),
        comparison=chosen.comparison,
        accuracy=accuracy_of(
            chosen.comparison,
            chosen.held_out,
            tuner.calibrated,
            is_real=tuner.is_real,
        ),
        candidates=tuner.candidates(chosen),
        applied=tuner.applied,
        speed_ups=speed_ups,
        segments=tuple(segments),
        rewritten=tuner.rewritten,
        notes=tuner.notes(),
    )
