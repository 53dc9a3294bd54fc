"""Futures whose callbacks run in program order, and may call collectives.

DDP's communication hooks chain collectives by callbacks: PowerSGD has three callbacks for each
bucket of gradients. All ranks must call the collectives of a group in the same order, but
operations end in a different order on each rank. So a group has a thread that runs the callbacks in
the order in which `then` received them, whichever operation ends first. The collectives that
callbacks call use a separate group of the engine, so that no call from another thread comes between
them.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

from slipstream.torch.backward import wait_at_end
from slipstream.torch.dynamo import keep_out

JOIN_SECONDS = 5.0  # longest wait for the thread in close(); chosen by hand, not measured

_threads: set[int] = set()  # identities of the threads that run callbacks


def in_callback() -> bool:
    """Return whether the caller is a callback that a future's `then` received."""
    return threading.get_ident() in _threads


class Callbacks:
    """Thread that runs the callbacks of a group; the first callback starts it."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the two attributes below
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, call: Callable[[], None]) -> None:
        """Run `call` in the thread, after all earlier calls; `call` must not raise."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._calls.put(call)
            if self._thread is None and not closed:
                # A daemon, so that a script that never destroys its group can end.
                self._thread = threading.Thread(
                    target=self._serve, name="slipstream-callbacks", daemon=True
                )
                self._thread.start()
        if closed:
            call()

    def close(self) -> None:
        """End the thread after the remaining calls; block for five seconds at most."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    def _serve(self) -> None:
        _threads.add(threading.get_ident())
        try:
            while (call := self._calls.get()) is not None:
                call()
                del call  # it refers to tensors
        finally:
            _threads.discard(threading.get_ident())


class FutureFailure:
    """Value of a future that failed; the value contains the error.

    Python code cannot make a future fail for C++ code; it can only set a value. DDP's C++ code
    pickles the value of a future to find tensors. Pickling a `FutureFailure` raises the error, so
    DDP raises the error too.

    Args:
        error: Error of the future.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> str:
        raise self.error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


@keep_out
class OrderedFuture(torch.futures.Future[Any]):
    """PyTorch's future, extended by callbacks that run in program order.

    Args:
        callbacks: Thread that runs the callbacks of a collective's future. A backward pass in which
            a collective's future is created waits for this future at its end. If `callbacks` is
            None, callbacks run in the thread that completes the future.
    """

    def __init__(self, callbacks: Callbacks | None) -> None:
        super().__init__()
        self._callbacks = callbacks
        if callbacks is not None:
            wait_at_end(self)

    def then(self, callback: Callable[[Any], Any]) -> torch.futures.Future[Any]:
        """Return a future for the result of a callback; the callback's argument is this future."""
        if self._callbacks is None:
            return super().then(callback)
        following = OrderedFuture(self._callbacks)

        def call() -> None:
            with contextlib.suppress(Exception):  # the callback gets the error from this future
                self.wait()
            try:
                result = callback(self)
            except RuntimeError as error:
                following.set_exception(error)
            except Exception as error:  # noqa: BLE001  passed on, in the class that PyTorch uses
                failure = RuntimeError(f"a callback failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                following.set_exception(failure)
            else:
                following.set_result(result)

        if in_callback():  # runs here, because the waiting callback may occupy the thread
            call()
        else:
            self._callbacks.run(call)
        return following

    def set_exception(self, result: Any) -> None:
        """Complete the future with an error, which is raised by waits in Python and in C++."""

        def raise_error(failure: FutureFailure) -> None:
            raise failure.error

        # PyTorch's own method calls this private function too; there is no public one.
        self._set_unwrap_func(raise_error)  # pyright: ignore
        self.set_result(FutureFailure(result))
