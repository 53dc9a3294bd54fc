"""Things of which every call needs one for itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Makes a thing when all are in use, and keeps it for later. Thread-safe."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._free: queue.SimpleQueue[T] = queue.SimpleQueue()

    @contextmanager
    def taken(self) -> Generator[T]:
        """Yield a thing that nobody else has meanwhile."""
        try:
            thing = self._free.get_nowait()
        except queue.Empty:
            with self._making:
                thing = self._make()
        try:
            yield thing
        finally:
            self._free.put(thing)

    def clear(self) -> None:
        """Let go of all that are not in use."""
        while not self._free.empty():
            self._free.get_nowait()
