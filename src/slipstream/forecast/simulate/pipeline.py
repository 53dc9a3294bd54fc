"""Schedule of micro-batches over pipeline stages: 1F1B, plain or interleaved.

Source: Narayanan et al. 2019, "PipeDream", doi 10.1145/3341301.3359646; 2021, arXiv 2104.04473, for
interleaved stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from slipstream.forecast.simulate.resources import Resources, ResourceSpan


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Durations of one pipeline stage for one micro-batch, in seconds.

    Args:
        forward: Forward pass.
        backward: Backward pass.
        send: Transfer of the activations to the next stage; the transfer of the gradients takes the
            same time (default 0.0).
    """

    forward: float
    backward: float
    send: float = 0.0


def schedule(
    stages: Sequence[StageTimes], micro_batches: int, queues: Resources, ranks: int = 0
) -> list[tuple[float, float]]:
    """Simulate the schedule, and return when each rank's last backward pass starts and ends.

    Args:
        stages: Stages in the order of the model; stage i runs on rank i modulo `ranks`.
        micro_batches: Number of micro-batches, at least 1.
        queues: Empty timelines, to which the passes are added; rank 0 runs on "device 0".
        ranks: Number of pipeline ranks (default 0: the number of stages).
    """
    starts, spans = _run(tuple(stages), micro_batches, ranks or len(stages))
    queues.add(spans)
    return [(start, queues.free(f"device {rank}")) for rank, start in enumerate(starts)]


# The search tries strategies that differ only in sharded states one after another; their schedules
# are the same.
@lru_cache(maxsize=4)
def _run(
    stages: tuple[StageTimes, ...], micro_batches: int, ranks: int
) -> tuple[Sequence[float], Sequence[ResourceSpan]]:
    """Return the start of each rank's last backward pass, and the tasks of all ranks."""
    passes = _passes_in_order(ranks, len(stages) // ranks, micro_batches)
    seconds = [stage.forward for stage in stages] + [stage.backward for stage in stages]
    sends = [stage.send for stage in stages]
    # The first forward pass waits for no transfer, and neither does the last stage's backward pass.
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
    """Return the same times as `schedule`, but simulate only some of the micro-batches.

    Once the pipeline is full, every group of `ranks` micro-batches takes the same time.

    Args:
        stages: Stages in the order of the model; stage i runs on rank i modulo `ranks`.
        micro_batches: Number of micro-batches, at least 1. Micro-batches that are not simulated are
            not added to the timelines.
        queues: Empty timelines, to which the simulated passes are added.
        ranks: Number of pipeline ranks (default 0: the number of stages).
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
    """Return the seconds per micro-batch of a full pipeline.

    On the last stage, a micro-batch starts only after the backward pass of the micro-batch before
    it. On the stage before the last, it starts only after the backward pass of the micro-batch two
    places before it, and so on.

    Args:
        stages: Stages in the order of the model, one for each rank.
    """
    most, back = 0.0, 0.0
    for place, stage in enumerate(reversed(stages), 1):
        passes = stage.forward + stage.backward
        back += passes + (2 * stage.send if place > 1 else 0.0)
        most = max(most, passes, back / place)
    return most


@lru_cache(maxsize=16)
def _passes_in_order(
    ranks: int, turns: int, micro_batches: int
) -> Sequence[tuple[int, int, int, str]]:
    """Return the passes of all ranks, sorted so that each pass follows the pass it waits for.

    Each entry has the rank, the stage, the index of the entry that the pass waits for (-1: none),
    and a name. The stages of backward passes are numbered after those of forward passes.
    """
    stages = ranks * turns
    orders = [list(_order(rank, ranks, turns, micro_batches)) for rank in range(ranks)]
    places: dict[tuple[int, int], int] = {}
    nexts = [0] * ranks
    passes: list[tuple[int, int, int, str]] = []
    before = -1
    while len(passes) > before:
        before = len(passes)
        for rank, order in enumerate(orders):
            for backward, turn, batch in order[nexts[rank] :]:
                kind = turn * ranks + rank + backward * stages
                after = places.get((_needs(kind, stages), batch)) if kind else -1
                if after is None:
                    break
                places[kind, batch] = len(passes)
                name = f"{'backward' if backward else 'forward'} {batch}"
                passes.append((rank, kind, after, name))
                nexts[rank] += 1
    return passes


def _needs(kind: int, stages: int) -> int:
    """Return the number of the pass that must end before the pass `kind` can start.

    Both passes have the same micro-batch. Numbers count the forward passes of all stages, then the
    backward passes of all stages. Only the last stage's backward pass waits for the same stage.
    """
    if kind < stages:
        return kind - 1
    return kind - stages if kind == 2 * stages - 1 else kind + 1


def _order(
    rank: int, ranks: int, turns: int, micro_batches: int
) -> Iterator[tuple[bool, int, int]]:
    """Yield the passes of a rank in execution order.

    Each pass is a tuple: whether it is a backward pass, the index of the stage among the rank's
    stages, and the index of the micro-batch.
    """
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
    """Yield the forward passes of a rank in execution order.

    Each pass is a tuple: the index of the stage among the rank's stages, and the index of the
    micro-batch.
    """
    for begin in range(0, micro_batches, ranks if turns > 1 else micro_batches):
        some = range(begin, min(micro_batches, begin + ranks) if turns > 1 else micro_batches)
        for turn in range(turns):
            for batch in some:
                yield turn, batch
