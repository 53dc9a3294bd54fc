"""Callbacks at the completion of operations, called by one thread that waits in the engine."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence

from slipstream import _core

POLL_SECONDS = 1.0  # longest time until the thread notices close(); chosen by hand, not measured

_log = logging.getLogger(__name__)


class Completions:
    """Thread that completes futures; the first operation with a callback starts the thread.

    Args:
        runtime: Engine, whose events no other code may read.
    """

    def __init__(self, runtime: _core.Runtime) -> None:
        self._runtime = runtime
        self._tokens = itertools.count()
        self._lock = threading.Lock()  # guards the attributes below
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def when_done(self, handles: Sequence[_core.Handle], callback: Callable[[], None]) -> None:
        """Call `callback` once, in the thread, when every handle is complete or has failed."""
        pending = len(handles)

        def one_done() -> None:  # runs only in the thread, so it needs no lock
            nonlocal pending
            pending -= 1
            if pending == 0:
                callback()

        if pending == 0 or self._closed:
            callback()
            return
        self._start()
        for handle in handles:
            token = next(self._tokens)
            with self._lock:
                self._callbacks[token] = one_done
            self._runtime.notify(handle, token)

    def is_here(self) -> bool:
        """Return whether the caller runs in the thread that completes futures."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread, and call the remaining callbacks; the engine must be closed already."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        while self._callbacks:
            _, callback = self._callbacks.popitem()
            _call(callback)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                # A daemon, so that a script that never destroys its group can end.
                self._thread = threading.Thread(
                    target=self._serve, name="slipstream-completions", daemon=True
                )
                self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            event = self._runtime.next_event(POLL_SECONDS)
            if event is None:
                continue
            with self._lock:
                callback = self._callbacks.pop(event[1], None)
            if callback is not None:
                _call(callback)
            del callback  # it keeps the operation's tensors alive, and the next event may come late


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001  logged, so that the other callbacks are still called
        _log.exception("a callback at the completion of an operation failed")
