"""The report of a search: all candidates, the rewrites, and the reason for the choice."""

from __future__ import annotations

from slipstream.infer.importers import Imported
from slipstream.infer.machine import this_machine
from slipstream.infer.package.report import Candidate, Report, Rewritten, State
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.search import SearchResult
from slipstream.units import format_bytes


def report_of(
    imported: Imported,
    objective: Objective,
    result: SearchResult,
    seconds: float,
    search_seconds: float,
) -> Report:
    """Return the report of a search.

    Args:
        imported: Model that was compiled.
        objective: Objective of the search.
        result: Chosen candidate and all measurements of the search.
        seconds: Duration of the import and the search together, in seconds.
        search_seconds: Duration of the search alone, in seconds.
    """
    return Report(
        origin=imported.origin,
        machine=this_machine(),
        threads=objective.threads,
        target=objective.target,
        allowed=objective.allowed(result.comparison),
        accuracy=result.accuracy,
        data=result.accuracy.data,
        notes=(*imported.notes, *result.notes),
        nodes_before=len(imported.graph.nodes),
        nodes_after=len(result.rewritten.nodes),
        rewrites=_rewrites(result),
        candidates=result.candidates,
        segments=result.segments,
        choice=_choice(result.candidates, objective),
        seconds=seconds,
        search_seconds=search_seconds,
    )


def _rewrites(result: SearchResult) -> tuple[Rewritten, ...]:
    """Return the effects of the rewrites that matched, with the saved time if it was measured."""
    return tuple(
        Rewritten(
            name=item.name,
            matches=item.matches,
            nodes_saved=item.nodes_before - item.nodes_after,
            gained_ms=1e3 * result.speed_ups[item.name] if item.name in result.speed_ups else None,
        )
        for item in result.applied
        if item.matches
    )


def _choice(candidates: tuple[Candidate, ...], objective: Objective) -> str:
    """Return a sentence with the reason for the chosen candidate, which is the first one."""
    chosen = candidates[0]
    assert chosen.low_ms is not None
    graph = "the rewritten graph" if chosen.rewrites else "the graph as imported"
    text = f"{chosen.title} on {graph}: {chosen.low_ms:.3f} ms in the best quarter of its rounds"
    if objective.target == "memory":
        text += f" and {format_bytes(chosen.weights_bytes or 0)} of weights, the least of all"
    others = [
        (item.low_ms, item)
        for item in candidates[1:]
        if item.low_ms is not None
        and item.state is State.MEASURED
        and (item.engine != chosen.engine or item.precision != chosen.precision)
    ]
    if not others:
        return f"{text}; nothing else could be chosen."
    time_ms, other = min(others, key=lambda pair: pair[0])
    ratio = time_ms / chosen.low_ms
    return f"{text}; next is {other.title} with {time_ms:.3f} ms, {ratio:.2f} times that."
