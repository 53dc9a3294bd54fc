"""Which engine runs a model best here, in which precision and from which graph: all are tried.

Every candidate's results are held against those of the graph as imported, which ONNX Runtime runs
in float32 without optimisations. Those that keep to the budget are timed by turns, and the best one
wins.
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
from slipstream.infer.search.byte_candidates import add_bytes, add_mixtures
from slipstream.infer.search.contest import Contest, Tell
from slipstream.infer.search.gains import measure_gains
from slipstream.infer.search.goal import Goal
from slipstream.infer.search.judging import against_bytes, confirmed, judge
from slipstream.infer.search.one_by_one import try_each
from slipstream.infer.search.segments import Contender, best_parts, measure_segments
from slipstream.infer.search.time_limit import TimeLimit
from slipstream.infer.search.trial import Trial

# Shares of the time until which each part may go on.
TIMING_ENDS, SEGMENTS_END, CONFIRMING_ENDS = 0.77, 0.84, 0.92
GAIN = 0.98  # of the best whole: what the parts must promise together


@dataclass(frozen=True)
class Found:
    """What a search found.

    Args:
        recipe: the best one.
        graph: that it runs.
        comparison: difference of its results from the reference's, on the samples that judged.
        accuracy: promise, measured on samples that had no part in choosing it if there are any.
        candidates: all, the chosen one first, then by time.
        applied: what the rewrites did.
        gains: seconds of a call that each of them saves, where that was measured.
        segments: times of the model's parts.
        rewritten: the graph after them.
        notes: what was left out and why.
    """

    recipe: Recipe
    graph: Graph
    comparison: Comparison
    accuracy: Accuracy
    candidates: tuple[Candidate, ...]
    applied: tuple[Applied, ...]
    gains: Mapping[str, float]
    segments: tuple[Segment, ...]
    rewritten: Graph
    notes: tuple[str, ...]


def search(
    imported: Imported,
    goal: Goal,
    samples: Samples | None = None,
    tell: Tell = lambda text, share: None,
    limit: TimeLimit | None = None,
) -> Found:
    """Try every engine in every precision that this machine can run, and find the best.

    Args:
        imported: the model.
        goal: what is looked for.
        samples: a quarter of them, 64 at most, calibrates int8, a quarter is held out to tell how
            good the chosen one is, and the others judge. Of less than 16 int8 is not tried; without
            any, floating point is compared on random inputs.
        tell: called with what is being done, and the share of the time that has passed.
        limit: the time that it may take, default `goal.seconds` from now on.

    Raises UsageError where the graph cannot be run at all, UnsupportedError where no candidate
    keeps to the budget; both say why. Blocks for about `goal.seconds`, or less. A step whose
    expected time does not fit is left out, and a note says so.
    """
    contest = Contest(imported, goal, samples, tell, limit)
    try:
        if contest.is_large:
            try_each(contest, with_bytes=samples is not None)
            return _found(contest, confirmed(contest, CONFIRMING_ENDS), [])
        for engine, recipe in contest.by_graph(*FLOATS):
            contest.trials.append(contest.ready(engine, recipe))
        if samples is not None:
            _add_candidates_of_bytes(contest)
        judge(contest, contest.alive())
        contest.time(contest.alive(), TIMING_ENDS)
        segments = _add_parts(contest)
        return _found(contest, confirmed(contest, CONFIRMING_ENDS), segments)
    finally:
        contest.close()


def _add_candidates_of_bytes(contest: Contest) -> None:
    """Where samples and time suffice to tell how good they are."""
    reason = against_bytes(contest)
    if reason:
        contest.notes.append(f"it stays in floating point: {reason}")
    else:
        add_mixtures(contest, add_bytes(contest, contest.trials.append))


def _add_parts(contest: Contest) -> list[Segment]:
    """Time parts of the model on each engine, and try the best of each part together."""
    best = contest.best()
    contenders = _contenders(contest)
    if len(contenders) < 2 or contest.goal.target != "latency":
        return []
    making = sum(contest.ready_seconds(item.engine.name) for item in contenders)
    timing = LEAST_CALLS * sum(trial.run_seconds for trial in contest.alive())
    if not contest.limit.fits("time the model in parts", making + timing, SEGMENTS_END):
        return []
    left = contest.limit.left(SEGMENTS_END)
    threads, rounds = contest.goal.threads, contest.goal.most_rounds
    segments = measure_segments(
        contest.rewritten, contenders, threads, contest.first, left, contest.say, rounds
    )
    promised = sum(min(item.ms.values()) for item in segments) / 1e3
    if not segments or promised > GAIN * best.seconds:
        return segments
    parts = best_parts(segments, contenders)
    trial = Trial(parts, comparison=contest.reference.comparison())
    if not trial.recipe.parts or not contest.limit.fits("try the best parts together", making):
        return segments
    contest.say("the best parts are made ready together")
    trial.prepare(engine_of(trial.recipe.engine), contest.rewritten, threads, contest.first)
    contest.trials.append(trial)
    if trial.executable is not None:
        judge(contest, [trial], 1.0)
    if trial.executable is not None:
        contest.time([best, trial], 1.0)
    return segments


def _contenders(contest: Contest) -> list[Contender]:
    """The fastest candidate of each engine, the fastest engine first."""
    able = [
        trial
        for trial in contest.alive()
        if trial.state is State.MEASURED and trial.recipe.rewrites and trial.recipe.streams == 1
    ]
    able.sort(key=lambda trial: trial.seconds)
    first = {trial.recipe.engine: trial for trial in reversed(able)}
    return [
        Contender(trial.candidate().title, ENGINES[trial.recipe.engine], trial.recipe)
        for trial in sorted(first.values(), key=lambda trial: trial.seconds)
    ]


def _found(contest: Contest, chosen: Trial, segments: list[Segment]) -> Found:
    """The winner and all others."""
    chosen.state = State.CHOSEN
    gains = {} if contest.is_large else measure_gains(contest, chosen, contest.applied)
    order = sorted(contest.trials, key=lambda trial: (trial is not chosen, *_place(trial)))
    warning = chance_note(chosen.comparison)
    if warning:
        contest.notes.append(warning)
    if not contest.is_real:
        contest.notes.append(
            "there is no data, so int8 was not tried: it stays in floating point (--data)"
        )
    contest.notes.extend(contest.limit.notes())
    return Found(
        recipe=chosen.recipe,
        graph=contest.graph(chosen.recipe),
        comparison=chosen.comparison,
        accuracy=accuracy_of(
            chosen.comparison,
            chosen.held_out,
            contest.calibrated,
            is_real=contest.is_real,
        ),
        candidates=(*(trial.candidate() for trial in order), *contest.untried),
        applied=contest.applied,
        gains=gains,
        segments=tuple(segments),
        rewritten=contest.rewritten,
        notes=tuple(contest.notes),
    )


def _place(trial: Trial) -> tuple[bool, float]:
    return trial.timing is None, 0.0 if trial.timing is None else trial.seconds
