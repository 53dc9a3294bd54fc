"""The search for the engine, precision and graph that run a model best on this machine.

The outputs of every candidate are compared with the reference: ONNX Runtime runs the imported graph
in float32 without optimisations. Candidates within the accuracy budget are timed alternately, in
several rounds, and the best candidate is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.accuracy.promise import Accuracy, accuracy_of, chance_note
from slipstream.infer.engines import FLOATS, Recipe, engine_of
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers import Imported
from slipstream.infer.measure import LEAST_CALLS
from slipstream.infer.package.report import Candidate, Segment, State
from slipstream.infer.rewrites import Applied
from slipstream.infer.samples import Samples
from slipstream.infer.search.autotuner import Autotuner, Tell
from slipstream.infer.search.byte_candidates import add_bytes, add_mixed_precisions
from slipstream.infer.search.context import SearchContext
from slipstream.infer.search.judging import confirmed, judge, reason_against_bytes
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.one_by_one import try_each
from slipstream.infer.search.segments import SegmentContender, best_parts, measure_segments
from slipstream.infer.search.speed_ups import measure_speed_ups
from slipstream.infer.search.time_limit import TimeLimit
from slipstream.infer.search.trial import Trial

# Shares of the search time at which each step must end. Chosen by hand, not measured.
TIMING_ENDS, SEGMENTS_END, CONFIRMING_ENDS = 0.77, 0.84, 0.92
# The model is tried with each part on its fastest engine if the sum of the parts' times is at most
# this share of the best candidate's time. Chosen by hand, not measured.
GAIN = 0.98


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Args:
        recipe: Recipe of the chosen candidate.
        graph: Graph that the recipe runs.
        comparison: Comparison of the chosen candidate's outputs with the reference's, on the
            judging samples.
        accuracy: Promised accuracy, measured on the held-out samples if there are any.
        candidates: All candidates: first the chosen candidate, then the others, sorted by time.
        applied: Effect of each rewrite on the graph: its matches, and the saved nodes.
        speed_ups: Seconds per call that each measured rewrite saves, by the name of the rewrite.
        segments: Times of the model's parts; empty if they were not measured.
        rewritten: Graph after the rewrites.
        notes: Sentences about steps that were left out, with the reasons.
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
    """Try every engine in every precision that this machine can run; find the best candidate.

    Args:
        imported: Imported model.
        objective: Objective and limits of the search.
        samples: The user's samples (default None: random inputs replace them, and int8 is not
            tried). A quarter of the samples, 64 at most, is used to calibrate int8. A quarter of
            the samples is held out to measure the accuracy of the chosen candidate. All candidates
            are compared on the remaining samples. At least 16 samples are needed for int8.
        tell: Function that is called with the current step, and with the share of the search time
            that has passed.
        limit: Time limit of the search (default: `objective.seconds` from the call on).

    Raises UsageError if the reference cannot run the graph, and UnsupportedError if no candidate is
    accurate enough. UsageError and UnsupportedError name the reasons. The call blocks for about
    `objective.seconds`, or less. A step that would last longer than the remaining time is left out,
    and a note says so.
    """
    limit = limit or TimeLimit(objective.seconds)
    tuner = Autotuner(SearchContext.of(imported, objective, samples, limit), tell)
    try:
        tuner.learn()
        segments = _try_all(tuner)
        return _result(tuner, confirmed(tuner, CONFIRMING_ENDS), segments)
    finally:
        tuner.close()


def _try_all(tuner: Autotuner) -> list[Segment]:
    """Prepare, judge and time all candidates; return times of the model's parts, if measured."""
    if tuner.context.is_large:
        try_each(tuner)
        return []
    for engine, recipe in tuner.by_graph(*FLOATS):
        tuner.add(tuner.ready(engine, recipe))
    if tuner.context.has_data:
        _add_candidates_of_bytes(tuner)
    judge(tuner, tuner.alive())
    tuner.time(tuner.alive(), TIMING_ENDS)
    return _add_parts(tuner)


def _add_candidates_of_bytes(tuner: Autotuner) -> None:
    """Add candidates in int8, if samples and time suffice to measure their accuracy."""
    reason = reason_against_bytes(tuner)
    if reason:
        tuner.note(f"the model stays in floating point: {reason}")
    else:
        add_mixed_precisions(tuner, add_bytes(tuner, tuner.add))


def _add_parts(tuner: Autotuner) -> list[Segment]:
    """Time parts of the model on each engine; try each part on its fastest engine."""
    context = tuner.context
    best = tuner.best()
    contenders = _contenders(tuner)
    if len(contenders) < 2 or context.objective.target != "latency":
        return []
    preparation = sum(tuner.ready_seconds(item.engine.name) for item in contenders)
    timing = LEAST_CALLS * sum(trial.run_seconds for trial in tuner.alive())
    if not context.limit.fits("time the model in parts", preparation + timing, SEGMENTS_END):
        return []
    segments = measure_segments(
        context.rewritten,
        contenders,
        context.objective.threads,
        context.first_inputs,
        context.limit.left(SEGMENTS_END),
        tuner.say,
        context.objective.most_rounds,
    )
    expected = sum(min(item.ms.values()) for item in segments) / 1e3
    if segments and expected <= GAIN * best.seconds:
        recipe = best_parts(segments, contenders)
        if recipe.parts and context.limit.fits("try the best parts together", preparation):
            _try_parts(tuner, recipe, best)
    return segments


def _try_parts(tuner: Autotuner, recipe: Recipe, best: Trial) -> None:
    """Prepare, judge and time the candidate that runs each part on its fastest engine."""
    context = tuner.context
    engine = engine_of(recipe.engine, card=context.card)
    trial = Trial(engine, recipe, comparison=context.reference.comparison())
    tuner.say("the best parts are made ready together")
    trial.prepare(context.rewritten, context.objective.threads, context.first_inputs)
    tuner.add(trial)
    if trial.executable is not None:
        judge(tuner, [trial], 1.0)
    if trial.executable is not None:
        tuner.time([best, trial], 1.0)


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
        SegmentContender(trial.candidate().title, trial.engine, trial.recipe)
        for trial in sorted(first.values(), key=lambda trial: trial.seconds)
    ]


def _result(tuner: Autotuner, chosen: Trial, segments: list[Segment]) -> SearchResult:
    """Mark `chosen` as the chosen candidate, and return the result of the search."""
    context = tuner.context
    chosen.state = State.CHOSEN
    speed_ups = {} if context.is_large else measure_speed_ups(tuner, chosen)
    warning = chance_note(chosen.comparison)
    if warning:
        tuner.note(warning)
    if not context.has_data:
        tuner.note("there is no data, so int8 was not tried: it stays in floating point (--data)")
    return SearchResult(
        recipe=chosen.recipe,
        graph=context.graph(chosen.recipe),
        comparison=chosen.comparison,
        accuracy=accuracy_of(
            chosen.comparison,
            chosen.held_out,
            tuner.num_calibrated,
            is_real=context.has_data,
        ),
        candidates=tuner.candidates(chosen),
        applied=context.applied,
        speed_ups=speed_ups,
        segments=tuple(segments),
        rewritten=context.rewritten,
        notes=tuner.notes(),
    )
