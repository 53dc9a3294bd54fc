"""The schedule of micro-batches over the stages of a pipeline: 1F1B, plain or interleaved.

Source: Narayanan et al. 2019, "PipeDream", doi 10.1145/3341301.3359646; 2021, arXiv 2104.04473, for
stages that each rank has several of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from slipstream.forecast.simulate.resources import Resources, ResourceSpan


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Blocks that run on one rank of the pipeline.

    Args:
        forward: seconds of one micro-batch.
        backward: seconds of one micro-batch.
        send: seconds in which what it gives reaches the next stage; its gradient takes as long.
    """

    forward: float
    backward: float
    send: float = 0.0


def schedule(
    stages: Sequence[StageTimes], micro_batches: int, queues: Resources, ranks: int = 0
) -> list[tuple[float, float]]:
    """Runs micro-batches through stages; returns when the last backward pass of each rank begins
    and ends, in seconds.

    Args:
        stages: in the order of the model; several per rank take turns.
        micro_batches: at least 1.
        queues: of a step that begins, on which the work is put, as "device 0" for the first rank.
        ranks: of the pipeline; 0: as many as stages.
    """
    starts, spans = _run(tuple(stages), micro_batches, ranks or len(stages))
    queues.add(spans)
    return [(start, queues.free(f"device {rank}")) for rank, start in enumerate(starts)]


# Strategies that share out states and not time are tried one after another.
@lru_cache(maxsize=4)
def _run(
    stages: tuple[StageTimes, ...], micro_batches: int, ranks: int
) -> tuple[Sequence[float], Sequence[ResourceSpan]]:
    """When the last backward pass of each rank begins, and what all do."""
    passes = _passes_in_order(ranks, len(stages) // ranks, micro_batches)
    seconds = [stage.forward for stage in stages] + [stage.backward for stage in stages]
    sends = [stage.send for stage in stages]
    # The first needs nothing, and the last stage nothing of another rank.
    waits = [0.0, *sends[:-1], *sends[:-1], 0.0]
    names = [f"device {rank}" for rank in range(ranks)]
    ends = [0.0] * (len(passes) + 1)
    frees, starts = [0.0] * ranks, [0.0] * ranks
    spans: list[ResourceSpan] = []
    for index, (rank, kind, after, name) in enumerate(passes):
        ready = ends[after] + waits[kind]
        start = starts[rank] = max(ready, frees[rank])
        ends[index] = frees[rank] = start + seconds[kind]
        spans.append(ResourceSpan(names[rank], name, start, frees[rank]))
    return starts, spans


def steady_schedule(
    stages: Sequence[StageTimes], micro_batches: int, queues: Resources, ranks: int = 0
) -> list[tuple[float, float]]:
    """Returns what `schedule` does, without each of many micro-batches: once a pipeline is full,
    as many as it has ranks take as long as those before.

    Args:
        stages: in the order of the model; several per rank take turns.
        micro_batches: at least 1; those that are left out are not put on the queues.
        queues: on which the others are put.
        ranks: of the pipeline; 0: as many as stages.
    """
    ranks = ranks or len(stages)
    most = 2 * ranks + micro_batches % ranks
    if micro_batches <= most + ranks:
        return schedule(stages, micro_batches, queues, ranks)
    longer = schedule(stages, most, queues, ranks)
    times = micro_batches - most
    if ranks == len(stages):
        more = times * period(stages)
        return [(start + more, end + more) for start, end in longer]
    shorter = schedule(stages, most - ranks, Resources(), ranks)
    return [
        (start + times / ranks * (start - before[0]), end + times / ranks * (end - before[1]))
        for (start, end), before in zip(longer, shorter, strict=True)
    ]


def period(stages: Sequence[StageTimes]) -> float:
    """Returns the seconds that each micro-batch takes in a pipeline that is full.

    Stage i of n runs no micro-batch before the backward pass of the one n - i before has come back.

    Args:
        stages: one for each rank.
    """
    most, back = 0.0, 0.0
    for place, stage in enumerate(reversed(stages), 1):
        own = stage.forward + stage.backward
        back += own + (2 * stage.send if place > 1 else 0.0)
        most = max(most, own, back / place)
    return most


@lru_cache(maxsize=16)
def _passes_in_order(
    ranks: int, turns: int, micro_batches: int
) -> Sequence[tuple[int, int, int, str]]:
    """The passes of all ranks, each after what it waits for: its rank, its stage (those of backward
    passes are counted on), the index of the one that it waits for (-1: none), and a name."""
    stages = ranks * turns
    orders = [list(_order(rank, ranks, turns, micro_batches)) for rank in range(ranks)]
    places: dict[tuple[int, int], int] = {}
    nexts = [0] * ranks
    found: list[tuple[int, int, int, str]] = []
    before = -1
    while len(found) > before:
        before = len(found)
        for rank, order in enumerate(orders):
            for backward, turn, batch in order[nexts[rank] :]:
                kind = turn * ranks + rank + backward * stages
                after = places.get((_needs(kind, stages), batch)) if kind else -1
                if after is None:
                    break
                places[kind, batch] = len(found)
                name = f"{'backward' if backward else 'forward'} {batch}"
                found.append((rank, kind, after, name))
                nexts[rank] += 1
    return found


def _needs(kind: int, stages: int) -> int:
    """The pass that one waits for: the stage before it, or behind it, or the last's forward."""
    if kind < stages:
        return kind - 1
    return kind - stages if kind == 2 * stages - 1 else kind + 1


def _order(
    rank: int, ranks: int, turns: int, micro_batches: int
) -> Iterator[tuple[bool, int, int]]:
    """The passes of a rank in order: (backward, which of its stages, micro-batch)."""
    forward = list(_passes(ranks, turns, micro_batches))
    backward = [(turns - 1 - turn, batch) for turn, batch in forward]
    ahead = ranks - rank - 1 if turns == 1 else 2 * (ranks - rank - 1) + (turns - 1) * ranks
    ahead = min(ahead, len(forward))
    for turn, batch in forward[:ahead]:
        yield False, turn, batch
    for index, (turn, batch) in enumerate(forward[ahead:]):
        yield False, turn, batch
        yield True, *backward[index]
    for turn, batch in backward[len(forward) - ahead :]:
        yield True, turn, batch


def _passes(ranks: int, turns: int, micro_batches: int) -> Iterator[tuple[int, int]]:
    """Each stage of a rank in turn takes as many micro-batches as there are ranks."""
    for begin in range(0, micro_batches, ranks if turns > 1 else micro_batches):
        some = range(begin, min(micro_batches, begin + ranks) if turns > 1 else micro_batches)
        for turn in range(turns):
            for batch in some:
                yield turn, batch
