"""How often Python looks for garbage while a forecast makes a million objects that all stay.

Its search takes a quarter of a forecast's time, and finds nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

# New objects after which Python looks for garbage; it is 700 or 2000 without this.
_NEW_OBJECTS = 200_000


class _Threshold:
    """Python's threshold, which is raised while someone is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = (0, 0, 0)

    def enter(self) -> None:
        """Raise it if nobody is inside yet, and if Python looks for garbage at all."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = gc.get_threshold()
                first, *others = self._before
                gc.set_threshold(max(first, _NEW_OBJECTS) if first else 0, *others)

    def leave(self) -> None:
        """Lower it again after the last one has left."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                gc.set_threshold(*self._before)


_threshold = _Threshold()


@contextmanager
def rare_collections() -> Generator[None]:
    """Let Python look for garbage less often; may be nested, and entered by several threads."""
    _threshold.enter()
    try:
        yield
    finally:
        _threshold.leave()
