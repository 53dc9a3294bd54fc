"""Memory advice in words: whether training fits, and if not, the cheapest change."""

from __future__ import annotations

from slipstream.forecast.report.terminal import duration, strategy_words
from slipstream.forecast.search.plan import Interval, MemoryFit
from slipstream.units import GIB


def advice(fit: MemoryFit) -> list[str]:
    """Return lines of text: whether the model fits in memory, and changes that make it fit.

    Args:
        fit: Memory that a replica of the whole model needs on the first plan's hosts, and changes
            that make it fit.
    """
    first = question(fit)
    if fit.fits:
        return [f"{first}: it fits"]
    if not fit.remedies:
        return [f"{first}: it does not fit, and no single change is enough; see the first plan"]
    cheapest, *further = (
        f"{remedy.words} ({needed}, {seconds} a step)"
        for remedy, (needed, seconds) in zip(fit.remedies, remedies(fit), strict=True)
    )
    lines = [f"{first}: it does not fit. The cheapest change that makes it fit: {cheapest}"]
    return lines + ([f"Other changes that make it fit: {', or '.join(further)}"] if further else [])


def question(fit: MemoryFit) -> str:
    """Return text that compares the memory that replicas need with the memory of a device."""
    has = fit.machine.cluster.device.memory_gib
    words = strategy_words(fit.strategy)[0]
    least = "at least " if fit.is_least else ""
    return (
        f"{words}, micro-batch {fit.strategy.micro_batch}, on {fit.hosts} x {fit.machine.name}"
        f" needs {least}{memory(fit.num_bytes)}; each device has {has:.0f} GiB"
    )


def memory(num_bytes: float) -> str:
    """Return a number of bytes as text in GiB."""
    return f"{num_bytes / GIB:.1f} GiB"


def remedies(fit: MemoryFit) -> list[tuple[str, str]]:
    """Return two texts for each change that makes the model fit: the memory and the step time."""
    return [
        (
            memory(remedy.num_bytes),
            duration(Interval(remedy.seconds, remedy.seconds, remedy.seconds))[0],
        )
        for remedy in fit.remedies
    ]
