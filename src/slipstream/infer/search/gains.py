"""What each rewrite gained: the chosen candidate beside the same one on a graph without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slipstream.infer.engines import Executable, engine_of
from slipstream.infer.graph.graph import Array
from slipstream.infer.measure import LEAST_CALLS, Run, interleave
from slipstream.infer.native.precision import storable
from slipstream.infer.rewrites import Applied, optimise
from slipstream.infer.search.contest import Contest
from slipstream.infer.search.trial import Trial

WITH, WITHOUT = "with", "without"
LEAST_SECONDS = 0.2  # for one rewrite's comparison


def measure_gains(contest: Contest, chosen: Trial, applied: Sequence[Applied]) -> dict[str, float]:
    """Seconds that a call of the chosen candidate takes more without a rewrite, by its name.

    Those that found most come first. Rewrites that the candidate cannot do without are left out, as
    are those without which other values would be bytes, and those for which no time was left.
    """
    found = sorted((item for item in applied if item.matches), key=lambda item: -item.matches)
    if not chosen.recipe.rewrites or chosen.recipe.parts or chosen.executable is None:
        return {}
    each = max(contest.limit.left() / max(len(found), 1), LEAST_SECONDS)
    making = contest.ready_seconds(chosen.recipe.engine)
    needed = making + max(2 * LEAST_CALLS * chosen.run_seconds, LEAST_SECONDS)
    gains: dict[str, float] = {}
    for item in found:
        if not contest.limit.fits("measure what every rewrite gained", needed):
            continue
        contest.say(f"what {item.name} gained is measured")
        other = _without(contest, chosen, item.name)
        if other is None or other.executable is None:
            continue
        try:
            runs = _runs(chosen.executable, other.executable, contest.first)
            timings = interleave(
                runs, each, most_rounds=contest.goal.most_rounds, final=float("inf")
            )
            gains[item.name] = timings[WITHOUT].median - timings[WITH].median
        finally:
            other.close()
    return gains


def _without(contest: Contest, chosen: Trial, name: str) -> Trial | None:
    """The candidate on a graph without a rewrite, made ready if its engine can; None where values
    that only this graph has would be bytes: nobody knows their ranges."""
    graph, _ = optimise(contest.imported.graph, without=(*contest.goal.without, name))
    if chosen.recipe.ranges and not set(storable(graph)) <= set(storable(contest.rewritten)):
        return None
    other = Trial(chosen.recipe)
    other.prepare(engine_of(chosen.recipe.engine), graph, contest.goal.threads, contest.first)
    return other


def _runs(chosen: Executable, other: Executable, inputs: Mapping[str, Array]) -> dict[str, Run]:
    return {WITH: lambda: chosen.run(inputs), WITHOUT: lambda: other.run(inputs)}
