"""Queues of a step: the host, the device, links; each does one thing after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ResourceSpan(NamedTuple):
    """Something that a queue did.

    Args:
        queue: as "device 0" or "network".
        name: for people.
        start: seconds from the begin of the step.
        end: seconds from the begin of the step.
    """

    queue: str
    name: str
    start: float
    end: float


class Resources:
    """Runs work on queues as soon as its queue is free and what it waits for has ended."""

    def __init__(self) -> None:
        self.spans: list[ResourceSpan] = []
        self._free: dict[str, float] = {}

    def run(self, queue: str, name: str, seconds: float, after: float = 0.0) -> float:
        """Appends work to a queue and returns when it ends.

        Args:
            queue: that does it.
            name: of the work.
            seconds: that it takes.
            after: when what it waits for has ended.
        """
        start = max(after, self._free.get(queue, 0.0))
        end = start + seconds
        self._free[queue] = end
        if seconds > 0:
            self.spans.append(ResourceSpan(queue, name, start, end))
        return end

    def add(self, spans: Sequence[ResourceSpan]) -> None:
        """Appends work whose times are known.

        Args:
            spans: those of each queue in order, and after all that it does already.
        """
        self.spans += [span for span in spans if span.end > span.start]
        for span in spans:
            self._free[span.queue] = span.end

    def free(self, queue: str) -> float:
        """Returns when a queue has done all its work."""
        return self._free.get(queue, 0.0)

    def busy(self, prefix: str) -> float:
        """Returns the seconds in which queues work whose names begin so."""
        return sum(span.end - span.start for span in self.spans if span.queue.startswith(prefix))
