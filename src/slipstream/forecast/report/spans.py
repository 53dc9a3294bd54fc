"""What the queues of a step did, as rows that can be drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from slipstream.forecast.report.rows import Row, label
from slipstream.forecast.search.plan import Plan
from slipstream.forecast.simulate.resources import ResourceSpan

# Queues that are drawn; of more, the first and the last.
MOST_QUEUES = 16
# Of the drawn time: what is shorter is drawn together with its neighbours.
_FINEST = 1 / 200
SEVERAL = "several"
_NUMBER = re.compile(r"\d+")


def drawn(plan: Plan) -> float:
    """Returns the seconds of a plan's step that its spans show; the update and what is like earlier
    micro-batches is not among them."""
    return max((span.end for span in plan.step.spans), default=0.0)


def schedule(number: int, plan: Plan) -> list[Row]:
    """Returns what the queues of a plan did.

    Args:
        number: its rank, from 1.
        plan: any.
    """
    queues = shown({span.queue for span in plan.step.spans})
    least = drawn(plan) * _FINEST
    rows: list[Row] = []
    for order, queue in enumerate(queues):
        mine = [span for span in plan.step.spans if span.queue == queue]
        for span in _together(sorted(mine, key=lambda each: each.start), least):
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
    """Returns the queues to draw: each device with its network, the first and the last of many.

    Args:
        queues: by name, as "device 0".
    """
    ordered = sorted(queues, key=_place)
    if len(ordered) <= MOST_QUEUES:
        return ordered
    half = MOST_QUEUES // 2
    return ordered[:half] + ordered[-half:]


def kind(name: str) -> str:
    """Returns the name of a span without its number: "forward 3" is "forward"."""
    return _NUMBER.sub("", name).strip()


def _place(queue: str) -> tuple[int, str]:
    found = _NUMBER.search(queue)
    return (int(found[0]) if found else -1, queue)


def _together(spans: Sequence[ResourceSpan], least: float) -> list[ResourceSpan]:
    """Joins spans that are too short to be seen with those after them."""
    found: list[ResourceSpan] = []
    for span in spans:
        last = found[-1] if found else None
        if last is None or span.end - last.start > least:
            found.append(span)
        else:
            name = last.name if kind(last.name) == kind(span.name) else SEVERAL
            found[-1] = ResourceSpan(last.queue, name, last.start, span.end)
    return found
