"""Changes with which a strategy fits in device memory, the cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from slipstream.forecast.memory.replay import PeakMemory
from slipstream.forecast.work.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Change:
    """A change that makes a strategy fit in device memory.

    Args:
        words: Human-readable description of the change; "" if nothing changed.
        strategy: Changed strategy, with the original global batch and number of ranks.
        peak: Peak memory of the changed strategy.
    """

    words: str
    strategy: Strategy
    peak: PeakMemory


def fits(
    strategy: Strategy,
    peak_of: Callable[[Strategy], PeakMemory | None],
    *,
    device_bytes: int,
    most_tensor: int = 8,
) -> tuple[Change, ...]:
    """Return the changes that make a strategy fit in device memory, the cheapest first.

    The changes are, in this order: ZeRO 1, ZeRO 2, activation checkpoints, ZeRO 3, and
    tensor-parallel ranks instead of replicas. Each change includes all earlier changes, and uses
    the largest micro-batch that fits. If the original strategy fits, it is the only result.

    Args:
        strategy: Strategy that may not fit.
        peak_of: Function that returns the peak memory of a strategy, or None if the strategy cannot
            fit. `fits` calls `peak_of` at most about ten times per change, never twice with the
            same strategy.
        device_bytes: Memory of a device, in bytes.
        most_tensor: Maximum number of tensor-parallel ranks, such as the number of devices in a
            host (default 8).

    Returns:
        Changes with which the strategy fits; empty if there are none.
    """
    changes: list[Change] = []
    for base in _bases(strategy, most_tensor):
        for candidate in _smaller(base):
            peak = peak_of(candidate)
            if peak is not None and peak.reserved <= device_bytes:
                changes.append(Change(_words(strategy, candidate), candidate, peak))
                break
        if changes and changes[0].strategy == strategy:
            break
    return tuple(changes)


def _bases(strategy: Strategy, most_tensor: int) -> Iterator[Strategy]:
    """Yield the changed strategies in the order that `fits` documents."""
    yield strategy
    for zero, checkpoint in ((1, False), (2, False), (2, True), (3, True)):
        previous = strategy
        if strategy.data > 1:
            strategy = replace(strategy, zero=max(zero, strategy.zero))
        strategy = replace(strategy, checkpoint=checkpoint or strategy.checkpoint)
        if strategy != previous:
            yield strategy
    while strategy.data % 2 == 0 and strategy.tensor * 2 <= most_tensor:
        strategy = replace(
            strategy,
            tensor=strategy.tensor * 2,
            data=strategy.data // 2,
            micro_batches=strategy.micro_batches * 2,
        )
        yield strategy


def _smaller(strategy: Strategy) -> Iterator[Strategy]:
    """Yield strategies with ever smaller micro-batches; the samples per step stay the same."""
    yield strategy
    while strategy.micro_batch % 2 == 0:
        strategy = replace(
            strategy,
            micro_batch=strategy.micro_batch // 2,
            micro_batches=strategy.micro_batches * 2,
        )
        yield strategy


def _words(before: Strategy, after: Strategy) -> str:
    parts: list[str] = []
    if after.tensor != before.tensor:
        parts.append(f"{after.tensor} tensor ranks")
    if after.zero != before.zero:
        parts.append(f"ZeRO {after.zero}")
    if after.checkpoint != before.checkpoint:
        parts.append("checkpoints")
    if after.micro_batch != before.micro_batch:
        parts.append(f"micro-batches of {after.micro_batch}")
    return ", ".join(parts)
