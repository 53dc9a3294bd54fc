"""Values that workers send to the callbacks of `RayExecutor.run` while they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_queue: Any = None  # of Ray, where this process is a worker whose callbacks were asked for


def configure(queue: Any) -> None:
    """Note where values go; for the executor.

    Args:
        queue: Queue of Ray; None discards values.
    """
    global _queue
    _queue = queue


def log(info: Mapping[str, Any]) -> None:
    """Hand a value to the callbacks, if there are any; those of rank 0 are passed on.

    Args:
        info: can be pickled.
    """
    if _queue is not None:
        _queue.put(dict(info))
