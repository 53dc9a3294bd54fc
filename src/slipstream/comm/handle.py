"""Handle of a collective in flight, from which the result can be obtained."""

from __future__ import annotations

from collections import deque
from typing import Any

from slipstream import _core

# No lock guards this deque: a finalizer appends to it, and may run in a thread that holds the lock.
_abandoned: deque[tuple[_core.Handle, tuple[object, ...]]] = deque()


def keep_until_done(handle: _core.Handle, arrays: tuple[object, ...]) -> None:
    """Keep the arrays of an operation alive until it ends, even if its handle is dropped."""
    _abandoned.append((handle, arrays))


def release_done() -> None:
    """Release what keep_until_done() has kept, except the arrays of operations in flight."""
    for _ in range(len(_abandoned)):
        try:
            handle, arrays = _abandoned.popleft()
        except IndexError:  # another thread has taken the last element
            return
        if not handle.done():
            _abandoned.append((handle, arrays))


class Handle:
    """An operation in flight.

    The arrays of the operation live until it has ended, even if this handle is dropped earlier.

    Args:
        handle: Handle of the C++ engine for the operation.
        result: Value that wait() returns.
        arrays: Objects that must live until the operation has ended.
    """

    __slots__ = ("_arrays", "_handle", "_result")

    def __init__(self, handle: _core.Handle, result: Any, arrays: tuple[object, ...]) -> None:
        self._handle = handle
        self._result = result
        self._arrays = arrays

    def __del__(self) -> None:
        if not self._handle.done():
            keep_until_done(self._handle, self._arrays)

    def done(self) -> bool:
        """Return whether the operation has ended, with or without an error; does not block."""
        return self._handle.done()

    def wait(self, timeout: float = 0.0) -> Any:
        """Block, without the GIL, until the operation has ended.

        Args:
            timeout: Time limit of this call in seconds (default 0: only the operation's own time
                limit applies). After a timeout, the operation goes on, and wait() can be called
                again.

        Returns:
            The array with the result.

        Raises:
            PeerError: another rank is gone.
            MismatchError: the ranks passed different arguments.
            PeerTimeoutError: the time limit has passed before the operation ended.
            AbortedError: the group was aborted or closed.
        """
        self._handle.wait(timeout)
        return self._result

    def source(self) -> int:
        """Return the sender of the message that recv() received, as a rank of the group."""
        return self._handle.source()
