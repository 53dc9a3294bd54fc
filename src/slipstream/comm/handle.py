"""A collective under way, and what it will return."""

from __future__ import annotations

from collections import deque
from typing import Any

from slipstream import _core

# Without a lock, since a finalizer may run anywhere, also while this thread holds one.
_abandoned: deque[tuple[_core.Handle, tuple[object, ...]]] = deque()


def keep_until_done(handle: _core.Handle, arrays: tuple[object, ...]) -> None:
    """Keep arrays alive that the engine uses and nobody waits for."""
    _abandoned.append((handle, arrays))


def let_go_of_done() -> None:
    """Drop what keep_until_done() was given of operations that have ended; cheap where none was."""
    for _ in range(len(_abandoned)):
        try:
            handle, arrays = _abandoned.popleft()
        except IndexError:  # another thread was quicker
            return
        if not handle.done():
            _abandoned.append((handle, arrays))


class Handle:
    """An operation in flight. The arrays live until it is done, whatever becomes of the handle.

    Args:
        handle: The engine's handle.
        result: Value that wait() returns.
        arrays: Objects that must live until the operation is done.
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
        """Tell whether the operation has ended, well or not; does not block."""
        return self._handle.done()

    def wait(self, timeout: float = 0.0) -> Any:
        """Block, without the GIL, until the operation has ended.

        Args:
            timeout: seconds; 0 means the operation's own limit. When it passes the operation goes
                on, and wait() can be called again.

        Returns:
            The array with the result.

        Raises:
            PeerError: a peer is gone. MismatchError: ranks passed different things.
            PeerTimeoutError: the limit has passed. AbortedError: the group was aborted or closed.
        """
        self._handle.wait(timeout)
        return self._result

    def source(self) -> int:
        """Return the rank in the group whose message a `recv` from any rank took."""
        return self._handle.source()
