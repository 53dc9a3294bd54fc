"""The speed-up by each rewrite: the chosen candidate is timed with and without the rewrite."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.infer.engines import Executable
from slipstream.infer.graph.graph import Array
from slipstream.infer.measure import LEAST_CALLS, Run, interleave
from slipstream.infer.native.precision import storable
from slipstream.infer.rewrites import optimise
from slipstream.infer.search.autotuner import Autotuner
from slipstream.infer.search.trial import Trial

WITH, WITHOUT = "with", "without"
# Least duration in seconds of the comparison for one rewrite. Chosen by hand, not measured.
LEAST_SECONDS = 0.2


def measure_speed_ups(tuner: Autotuner, chosen: Trial) -> dict[str, float]:
    """Return the seconds per call that each rewrite saves, by the name of the rewrite.

    The rewrites with the most matches are measured first. A rewrite is left out if the candidate
    cannot run without it, or if no time was left. A rewrite is also left out if the graph without
    the rewrite would have values in int8 whose ranges are unknown.
    """
    context = tuner.context
    if not chosen.recipe.rewrites or chosen.recipe.parts or chosen.executable is None:
        return {}
    applied = [item for item in context.applied if item.matches]
    applied.sort(key=lambda item: -item.matches)
    seconds = max(context.limit.left() / max(len(applied), 1), LEAST_SECONDS)
    preparation = tuner.ready_seconds(chosen.recipe.engine)
    needed = preparation + max(2 * LEAST_CALLS * chosen.run_seconds, LEAST_SECONDS)
    speed_ups: dict[str, float] = {}
    for item in applied:
        if not context.limit.fits("measure the speed-up by every rewrite", needed):
            continue
        tuner.say(f"the speed-up by {item.name} is measured")
        saved = _saved(tuner, chosen, item.name, seconds)
        if saved is not None:
            speed_ups[item.name] = saved
    return speed_ups


def _saved(tuner: Autotuner, chosen: Trial, name: str, seconds: float) -> float | None:
    """Return the seconds per call that one rewrite saves, or None if they cannot be measured."""
    other = _without(tuner, chosen, name)
    if other is None or other.executable is None or chosen.executable is None:
        return None
    try:
        runs = _runs(chosen.executable, other.executable, tuner.context.first_inputs)
        rounds = tuner.context.objective.most_rounds
        timings = interleave(runs, seconds, most_rounds=rounds, final=float("inf"))
        return timings[WITHOUT].median - timings[WITH].median
    finally:
        other.close()


def _without(tuner: Autotuner, chosen: Trial, name: str) -> Trial | None:
    """Prepare the chosen candidate on a graph without one rewrite.

    The result is None if the graph without the rewrite has values in int8 for which no range was
    found.
    """
    context = tuner.context
    without = (*context.objective.without, name)
    graph, _ = optimise(context.imported.graph, without=without)
    if chosen.recipe.ranges and not set(storable(graph)) <= set(storable(context.rewritten)):
        return None
    other = Trial(chosen.engine, chosen.recipe)
    other.prepare(graph, context.objective.threads, context.first_inputs)
    return other


def _runs(chosen: Executable, other: Executable, inputs: Mapping[str, Array]) -> dict[str, Run]:
    return {WITH: lambda: chosen.run(inputs), WITHOUT: lambda: other.run(inputs)}
