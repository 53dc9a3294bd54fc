"""Things of which every call needs one for itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Makes a thing when all are in use, and keeps it for later. Thread-safe."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._free: queue.SimpleQueue[T] = queue.SimpleQueue()

    def taken(self) -> _Taken[T]:
        """Return the context in which the caller has a thing that nobody else has meanwhile."""
        return _Taken(self)

    def take(self) -> T:
        """Return a thing that nobody else has until it is given back."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            with self._making:
                return self._make()

    def give_back(self, thing: T) -> None:
        """Let others take a thing."""
        self._free.put(thing)

    def clear(self) -> None:
        """Let go of all that are not in use."""
        while not self._free.empty():
            self._free.get_nowait()


class _Taken(Generic[T]):
    """A class, as entering a generator takes a microsecond longer."""

    __slots__ = ("_pool", "_thing")

    def __init__(self, pool: Pool[T]) -> None:
        self._pool = pool

    def __enter__(self) -> T:
        self._thing = self._pool.take()
        return self._thing

    def __exit__(self, *_: object) -> None:
        self._pool.give_back(self._thing)
