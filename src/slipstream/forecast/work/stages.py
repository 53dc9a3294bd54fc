"""Division of a model into pipeline stages, and the workload of one stage."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from slipstream.forecast.work.workload import TensorValue, Workload


def cuts(seconds: Sequence[float], stages: int) -> list[int]:
    """Return the stage index of each block; the slowest stage is as fast as possible.

    The method is dynamic programming over prefixes of the blocks and numbers of stages.

    Args:
        seconds: Duration of each block in seconds.
        stages: Number of stages, at most the number of blocks.
    """
    count = len(seconds)
    sums = [0.0]
    for duration in seconds:
        sums.append(sums[-1] + duration)
    best = [sums[:]]
    begins: list[list[int]] = [[0] * (count + 1)]
    for stage in range(1, stages):
        row, begin = [float("inf")] * (count + 1), [0] * (count + 1)
        for end in range(stage + 1, count + 1):
            choices = [
                (max(best[-1][start], sums[end] - sums[start]), start)
                for start in range(stage, end)
            ]
            row[end], begin[end] = min(choices)
        best.append(row)
        begins.append(begin)
    places, end = [0] * count, count
    for stage in range(stages - 1, -1, -1):
        start = begins[stage][end]
        places[start:end] = [stage] * (end - start)
        end = start
    return places


def stage(workload: Workload, stage_of: Sequence[int], number: int) -> Workload:
    """Return the workload of one stage; the tensors of other stages exist before it begins.

    Args:
        workload: Workload of one micro-batch of the whole model.
        stage_of: Index of the stage of each operator.
        number: Index of the stage to return.
    """
    mine = [index for index, place in enumerate(stage_of) if place == number]
    members = set(mine)
    touched = {
        value
        for index in mine
        for value in (*workload.operators[index].reads, *workload.operators[index].writes)
    }
    parameters = tuple(parameter for parameter in workload.parameters if parameter.ready in members)
    present = touched | {parameter.value for parameter in parameters}
    values = tuple(
        TensorValue(
            value.num_bytes if index in present else 0,
            bisect_left(mine, value.born) if value.born in members else -1,
            bisect_left(mine, value.dies) if value.dies >= 0 else -1,
        )
        for index, value in enumerate(workload.values)
    )
    return replace(
        workload,
        operators=tuple(workload.operators[index] for index in mine),
        values=values,
        parameters=tuple(
            replace(parameter, ready=bisect_left(mine, parameter.ready)) for parameter in parameters
        ),
    )
