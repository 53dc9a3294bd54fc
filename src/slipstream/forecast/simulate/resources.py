"""Resources of a step: host, devices and links, each of which runs one task at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ResourceSpan(NamedTuple):
    """Task that a resource ran.

    Args:
        queue: Name of the resource, such as "device 0" or "network 0".
        name: Human-readable name of the task.
        start: Start of the task in seconds since the start of the step.
        end: End of the task in seconds since the start of the step.
    """

    queue: str
    name: str
    start: float
    end: float


class Resources:
    """Timelines of resources; a task starts as soon as its resource and its inputs are ready."""

    def __init__(self) -> None:
        self.spans: list[ResourceSpan] = []
        self._free: dict[str, float] = {}

    def run(self, queue: str, name: str, seconds: float, after: float = 0.0) -> float:
        """Append a task to a resource and return the end of the task in seconds.

        Args:
            queue: Name of the resource.
            name: Human-readable name of the task.
            seconds: Duration of the task in seconds.
            after: Time in seconds at which the inputs of the task are ready (default 0.0).
        """
        start = max(after, self._free.get(queue, 0.0))
        end = start + seconds
        self._free[queue] = end
        if seconds > 0:
            self.spans.append(ResourceSpan(queue, name, start, end))
        return end

    def add(self, spans: Sequence[ResourceSpan]) -> None:
        """Append tasks whose times are already known.

        Args:
            spans: Tasks to append. The tasks of a resource are sorted by time, and start after the
                tasks that the resource already has.
        """
        self.spans += [span for span in spans if span.end > span.start]
        for span in spans:
            self._free[span.queue] = span.end

    def free(self, queue: str) -> float:
        """Return the time in seconds at which a resource has completed all its tasks."""
        return self._free.get(queue, 0.0)

    def busy(self, prefix: str) -> float:
        """Return the busy seconds of all resources whose names start with a prefix."""
        return sum(span.end - span.start for span in self.spans if span.queue.startswith(prefix))
