"""Values that rank 0 sends to the callbacks of `RayExecutor.run` while a function runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_queue: Any = None  # queue of Ray; set in a worker while it runs a function with callbacks


def configure(queue: Any) -> None:
    """Set the queue for values. Only `Worker` calls this function.

    Args:
        queue: Ray queue to which log() writes; None discards values.
    """
    global _queue
    _queue = queue


def log(info: Mapping[str, Any]) -> None:
    """Send a value to the callbacks; does nothing without callbacks and on ranks other than 0.

    Args:
        info: Value to send, which must be picklable.
    """
    if _queue is not None:
        _queue.put(dict(info))
