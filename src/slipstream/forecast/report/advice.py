"""Does it fit, and if not what is the cheapest change, in words."""

from __future__ import annotations

from slipstream.forecast.report.terminal import duration, strategy_words
from slipstream.forecast.search.plan import Interval, MemoryFit
from slipstream.units import GIB


def advice(fit: MemoryFit) -> list[str]:
    """Returns whether plain replicas fit, and below it each change with which they do.

    Args:
        fit: of the first plan's hosts.
    """
    first = question(fit)
    if fit.does:
        return [f"{first}: it fits"]
    if not fit.remedies:
        return [f"{first}: it does not fit, and needs what the first plan does"]
    cheapest, *rest = (
        f"{each.words} ({needed}, {seconds} a step)"
        for each, (needed, seconds) in zip(fit.remedies, remedies(fit), strict=True)
    )
    lines = [f"{first}: it does not fit; the cheapest change: {cheapest}"]
    return lines + ([f"else {', or '.join(rest)}"] if rest else [])


def question(fit: MemoryFit) -> str:
    """Returns what replicas need of what there is."""
    has = fit.machine.cluster.device.memory_gib
    words = strategy_words(fit.strategy)[0]
    least = "at least " if fit.is_least else ""
    return (
        f"{words}, micro-batch {fit.strategy.micro_batch}, on {fit.hosts} x {fit.machine.name}"
        f" needs {least}{memory(fit.num_bytes)} of {has:.0f} on each device"
    )


def memory(num_bytes: float) -> str:
    """Returns bytes in GiB."""
    return f"{num_bytes / GIB:.1f} GiB"


def remedies(fit: MemoryFit) -> list[tuple[str, str]]:
    """Returns the memory and the seconds of a step with each change."""
    return [
        (
            memory(each.num_bytes),
            duration(Interval(each.seconds, each.seconds, each.seconds))[0],
        )
        for each in fit.remedies
    ]
