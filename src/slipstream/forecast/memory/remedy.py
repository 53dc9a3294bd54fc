"""What to change where a device has too little memory, the cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from slipstream.forecast.memory.replay import Peak
from slipstream.forecast.work.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Change:
    """A strategy that fits.

    Args:
        words: what is other than it was, for people; "" where nothing is.
        strategy: with the same global batch and as many ranks.
        peak: that it needs.
    """

    words: str
    strategy: Strategy
    peak: Peak


def fits(
    strategy: Strategy,
    peak_of: Callable[[Strategy], Peak | None],
    *,
    device_bytes: int,
    most_tensor: int = 8,
) -> tuple[Change, ...]:
    """Returns what fits in a device's memory, in the order of what it costs.

    Tried are ZeRO 1 and 2, checkpoints, ZeRO 3, and tensor ranks in the place of replicas, each
    with all that comes before it; and with each, smaller micro-batches, of which the largest that
    fits is taken. A strategy that fits is returned alone.

    Args:
        strategy: that may not fit.
        peak_of: traces or looks up the workload of a strategy's `micro_batch` and `tensor`, and
            replays it; None: it is known not to fit. Called up to about ten times per change, never
            twice with the same.
        device_bytes: of a device.
        most_tensor: ranks that may share products, as those of a host.

    Returns:
        changes that fit, at most one of each kind; empty if none does.
    """
    found: list[Change] = []
    for base in _bases(strategy, most_tensor):
        for candidate in _smaller(base):
            peak = peak_of(candidate)
            if peak is not None and peak.reserved <= device_bytes:
                found.append(Change(_words(strategy, candidate), candidate, peak))
                break
        if found and found[0].strategy == strategy:
            break
    return tuple(found)


def _bases(strategy: Strategy, most_tensor: int) -> Iterator[Strategy]:
    """A strategy with more and more that is traded for memory."""
    yield strategy
    for zero, checkpoint in ((1, False), (2, False), (2, True), (3, True)):
        known = strategy
        if strategy.data > 1:
            strategy = replace(strategy, zero=max(zero, strategy.zero))
        strategy = replace(strategy, checkpoint=checkpoint or strategy.checkpoint)
        if strategy != known:
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
    """A strategy with smaller and smaller micro-batches, as many samples per step."""
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
