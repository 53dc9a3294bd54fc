"""The speed-up by each rewrite: the chosen candidate is timed beside one without the rewrite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slipstream.infer.engines import Executable, engine_of
from slipstream.infer.graph.graph import Array
from slipstream.infer.measure import LEAST_CALLS, Run, interleave
from slipstream.infer.native.precision import storable
from slipstream.infer.rewrites import Applied, optimise
from slipstream.infer.search.autotuner import Autotuner
from slipstream.infer.search.trial import Trial

WITH, WITHOUT = "with", "without"
LEAST_SECONDS = 0.2  # for one rewrite's comparison


def measure_speed_ups(
    tuner: Autotuner, chosen: Trial, applied: Sequence[Applied]
) -> dict[str, float]:
    """Return the seconds per call that each rewrite saves the chosen candidate, by its name.

    Rewrites with the most matches come first. A rewrite is left out if the candidate cannot run
    without it, if other values would be bytes without it, or if no time was left.
    """
    found = sorted((item for item in applied if item.matches), key=lambda item: -item.matches)
    if not chosen.recipe.rewrites or chosen.recipe.parts or chosen.executable is None:
        return {}
    each = max(tuner.limit.left() / max(len(found), 1), LEAST_SECONDS)
    making = tuner.ready_seconds(chosen.recipe.engine)
    needed = making + max(2 * LEAST_CALLS * chosen.run_seconds, LEAST_SECONDS)
    speed_ups: dict[str, float] = {}
    for item in found:
        if not tuner.limit.fits("measure what every rewrite gained", needed):
            continue
        tuner.say(f"what {item.name} gained is measured")
        other = _without(tuner, chosen, item.name)
        if other is None or other.executable is None:
            continue
        try:
            runs = _runs(chosen.executable, other.executable, tuner.first)
            timings = interleave(
                runs, each, most_rounds=tuner.objective.most_rounds, final=float("inf")
            )
            speed_ups[item.name] = timings[WITHOUT].median - timings[WITH].median
        finally:
            other.close()
    return speed_ups


def _without(tuner: Autotuner, chosen: Trial, name: str) -> Trial | None:
    """Prepare the chosen candidate on a graph without one rewrite.

    Return None if values that only this graph has would be bytes, because their ranges are unknown.
    """
    graph, _ = optimise(tuner.imported.graph, without=(*tuner.objective.without, name))
    if chosen.recipe.ranges and not set(storable(graph)) <= set(storable(tuner.rewritten)):
        return None
    other = Trial(chosen.recipe)
    other.prepare(engine_of(chosen.recipe.engine), graph, tuner.objective.threads, tuner.first)
    return other


def _runs(chosen: Executable, other: Executable, inputs: Mapping[str, Array]) -> dict[str, Run]:
    return {WITH: lambda: chosen.run(inputs), WITHOUT: lambda: other.run(inputs)}
