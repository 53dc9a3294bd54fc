"""Futures whose callbacks run in the order of the program, and may call collectives.

DDP's communication hooks chain collectives by callbacks: PowerSGD has three for each bucket of
gradients. All ranks must call the collectives of a group in one order, but operations end in
another order on each rank. So a group has a thread that runs what `then` was given in the order of
those calls, whatever ends first; and the collectives that are called there are a sequence of their
own in the engine, which no call of another thread gets into.
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

JOIN_SECONDS = 5.0

_threads: set[int] = set()  # identities of those that run callbacks


def in_callback() -> bool:
    """Tell whether the caller is a callback that `then` was given."""
    return threading.get_ident() in _threads


class Callbacks:
    """The thread that runs a group's callbacks; there is none until one is asked for."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the two below
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, call: Callable[[], None]) -> None:
        """Let the thread run `call` after all earlier calls; it must not raise."""
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
        """End the thread after what is left and block for a few seconds at most."""
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
                del call  # holds tensors
        finally:
            _threads.discard(threading.get_ident())


class FutureFailure:
    """The value of a future that failed, where Python cannot set an error.

    DDP, in C++, would take the first tensor of what it finds there, an exception having none. It
    looks for tensors as pickling does, and gets the error in place of them.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> str:
        raise self.error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


@keep_out
class OrderedFuture(torch.futures.Future[Any]):
    """A future of PyTorch's.

    Args:
        callbacks: the thread that runs what `then` is given, if the future is of a collective.
            Such a future is waited for at the end of the backward pass that it is made in. None:
            what `then` is given runs where the future is completed.
    """

    def __init__(self, callbacks: Callbacks | None) -> None:
        super().__init__()
        self._callbacks = callbacks
        if callbacks is not None:
            wait_at_end(self)

    def then(self, callback: Callable[[Any], Any]) -> torch.futures.Future[Any]:
        """Return the future of what `callback` makes of this one."""
        if self._callbacks is None:
            return super().then(callback)
        following = OrderedFuture(self._callbacks)

        def call() -> None:
            with contextlib.suppress(Exception):  # the callback looks at it
                self.wait()
            try:
                result = callback(self)
            except RuntimeError as error:
                following.set_exception(error)
            except Exception as error:  # noqa: BLE001  passed on, as the kind that PyTorch raises
                wrong = RuntimeError(f"a callback failed: {type(error).__name__}: {error}")
                wrong.__cause__ = error
                following.set_exception(wrong)
            else:
                following.set_result(result)

        if in_callback():  # which may wait for it, and so keep the thread from running it
            call()
        else:
            self._callbacks.run(call)
        return following

    def set_exception(self, result: Any) -> None:
        """Complete the future with an error, for those who wait in Python and in C++."""

        def raise_error(failure: FutureFailure) -> None:
            raise failure.error

        # As in PyTorch's own method, which has no public way either.
        self._set_unwrap_func(raise_error)  # pyright: ignore
        self.set_result(FutureFailure(result))
