"""Data rows for the timeline chart, which shows when each resource is busy during a step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from slipstream.forecast.report.rows import Row, label
from slipstream.forecast.search.plan import Plan
from slipstream.forecast.simulate.resources import ResourceSpan

# Maximum number of resources that are drawn; if there are more, only the first and the last
# `MOST_QUEUES // 2` are drawn.
MOST_QUEUES = 16
# Minimum length of a span, as a share of the drawn time; shorter spans are joined with their
# neighbours.
_FINEST = 1 / 200
SEVERAL = "several"
_NUMBER = re.compile(r"\d+")


def drawn(plan: Plan) -> float:
    """Return the number of seconds that the timeline of a plan's step shows.

    The timeline shows neither the optimizer's update nor micro-batches that were not simulated,
    because they run like an earlier micro-batch.
    """
    return max((span.end for span in plan.step.spans), default=0.0)


def schedule(number: int, plan: Plan) -> list[Row]:
    """Return one bar of the timeline chart for each task in a plan's step.

    Args:
        number: Rank of the plan, from 1.
        plan: Plan whose step is drawn.
    """
    queues = shown({span.queue for span in plan.step.spans})
    least = drawn(plan) * _FINEST
    rows: list[Row] = []
    for order, queue in enumerate(queues):
        mine = [span for span in plan.step.spans if span.queue == queue]
        for span in _together(sorted(mine, key=lambda task: task.start), least):
            rows.append(
                {
                    "plan": label(number, plan),
                    "queue": queue,
                    "order": order,
                    "kind": kind(span.name),
                    "what": span.name,
                    "start": round(span.start * 1e3, 4),
                    "end": round(span.end * 1e3, 4),
                }
            )
    return rows


def shown(queues: Iterable[str]) -> list[str]:
    """Return the names of the resources to draw, sorted by the numbers in the names.

    If there are more than `MOST_QUEUES`, the result contains only the first and the last names.

    Args:
        queues: Names of resources, such as "device 0".
    """
    ordered = sorted(queues, key=_place)
    if len(ordered) <= MOST_QUEUES:
        return ordered
    half = MOST_QUEUES // 2
    return ordered[:half] + ordered[-half:]


def kind(name: str) -> str:
    """Return a task's name without its number, such as "forward" for "forward 3"."""
    return _NUMBER.sub("", name).strip()


def _place(queue: str) -> tuple[int, str]:
    number = _NUMBER.search(queue)
    return (int(number[0]) if number else -1, queue)


def _together(spans: Sequence[ResourceSpan], least: float) -> list[ResourceSpan]:
    """Join successive tasks into one bar while the bar is too short to be visible."""
    joined: list[ResourceSpan] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is None or span.end - last.start > least:
            joined.append(span)
        else:
            name = last.name if kind(last.name) == kind(span.name) else SEVERAL
            joined[-1] = ResourceSpan(last.queue, name, last.start, span.end)
    return joined
