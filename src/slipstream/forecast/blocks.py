"""The repeated blocks of a model, which stages of a pipeline and gathers of FSDP follow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from slipstream.forecast.workload import Operator, Phase

_NUMBERED = re.compile(r"^(.*?)\.(\d+)(?:\.|$)")


def blocks(operators: Sequence[Operator]) -> tuple[int, list[int]]:
    """Returns how many repeated blocks there are, and for each operator the block that it is in.

    What comes before the first block is in the first one, what comes after the last in the last.
    Without repeated blocks, each module at the top is one.

    Args:
        operators: of a workload, forward and then backward.
    """
    prefix = _prefix(operators)
    numbers = [_number(operator.module, prefix) for operator in operators]
    found = sorted({number for number in numbers if number is not None})
    if not found:
        return 1, [0] * len(operators)
    places = {number: place for place, number in enumerate(found)}
    return len(found), _filled([None if n is None else places[n] for n in numbers], operators)


def _prefix(operators: Sequence[Operator]) -> str:
    """The list of modules that has most FLOPs."""
    flops: Counter[str] = Counter()
    for operator in operators:
        match = _NUMBERED.match(operator.module)
        if match:
            flops[match[1]] += int(operator.flops)
    return flops.most_common(1)[0][0] if flops else ""


def _number(module: str, prefix: str) -> int | None:
    match = _NUMBERED.match(module)
    return int(match[2]) if match and match[1] == prefix else None


def _filled(places: list[int | None], operators: Sequence[Operator]) -> list[int]:
    """Gives what is in no block to the one before it (in the backward pass: after the loss, the
    last); what comes before all blocks to the first."""
    last = max(place for place in places if place is not None)
    filled: list[int] = []
    current = 0
    before = Phase.FORWARD
    for place, operator in zip(places, operators, strict=True):
        if operator.phase is not before:
            before, current = operator.phase, last
        current = current if place is None else place
        filled.append(current)
    return filled
