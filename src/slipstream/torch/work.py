"""What PyTorch holds of an operation under way: it waits for it, or asks for a future."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import Work

from slipstream.errors import UsageError
from slipstream.torch.callbacks import Callbacks, OrderedFuture
from slipstream.torch.collectives import Submission
from slipstream.torch.completions import Completions
from slipstream.torch.dynamo import keep_out
from slipstream.torch.profiler import ProfilerRange
from slipstream.torch.tensors import copy_out

_NO_LIMIT = timedelta(0)

# Guards what is done once for an operation: its future, its callbacks, the copying of its results.
_once = threading.Lock()


@keep_out
class _Future(OrderedFuture):
    """The future of an operation; it may be waited for in a callback of another one."""

    def __init__(self, work: SlipstreamWork, callbacks: Callbacks | None) -> None:
        super().__init__(callbacks)
        self.pending: SlipstreamWork | None = work  # none once complete

    def wait(self) -> Any:
        """Block until the operation is complete and return the output tensors."""
        work = self.pending
        if work is not None:
            work.finish_if_called_back()
        del work  # the traceback of an error holds this frame, and would hold its tensors
        return super().wait()


@keep_out
class _FinishedWork(Work):
    """One for all operations that the caller wanted to wait for, and that were waited for."""

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Return True."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True: the call of one that failed has raised."""
        return True

    def exception(self) -> None:
        """Return None."""

    def synchronize(self) -> None:
        """Do nothing."""

    def result(self) -> Sequence[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Raise UsageError: no operation's results are kept here."""
        raise _no_result()

    def get_future(self) -> torch.futures.Future[Any]:
        """Raise UsageError, as `result` does."""
        raise _no_result()


def _no_result() -> UsageError:
    return UsageError(
        "the result of a collective that was not asynchronous is in its output tensors; set asyncOp"
        " of its options to have it from the work"
    )


FINISHED = _FinishedWork()


@keep_out
class SlipstreamWork(Work):
    """One operation, or several that were coalesced.

    Args:
        submission: Operation that was handed to the engine.
        in_flight: Works of the group that nobody has seen complete; they and their buffers live as
            long as the engine may use them.
        completions: Thread that makes the future complete.
        ordered: Thread that runs callbacks of the future in order; None for messages between two
            ranks, which may have to wait for one another.
    """

    __slots__ = (
        "_callbacks",
        "_completions",
        "_copies",
        "_future",
        "_handles",
        "_in_flight",
        "_ordered",
        "_range",
        "_task",
    )

    def __init__(
        self,
        submission: Submission,
        in_flight: dict[SlipstreamWork, None],
        completions: Completions,
        ordered: Callbacks | None,
    ) -> None:
        super().__init__()
        self._task = submission
        self._handles = submission.handles
        self._copies = submission.copies
        self._in_flight = in_flight
        self._completions = completions
        self._ordered = ordered
        self._future: _Future | None = None
        self._range: ProfilerRange | None = None
        # None once they were called.
        self._callbacks: tuple[Callable[[], None], ...] | None = ()
        for oldest in in_flight:
            oldest.settle_if_done()
            break
        in_flight[self] = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block, without the GIL, until the results are there.

        Args:
            timeout: Longest wait; 0 means the operation's own limit.

        Returns:
            True.

        Raises:
            PeerError: a peer is gone, or an operation took longer than its limit.
        """
        seconds = timeout.total_seconds()
        try:
            for handle in self._handles:
                handle.wait(seconds)
        except Exception:
            self._forget_if_done()
            raise
        self._settle()
        if self._range is not None:
            self.finish_if_called_back()
            self._range.wait()
        return True

    def is_completed(self) -> bool:
        """Tell, without blocking, whether the operation is complete or has failed."""
        if not all(handle.done() for handle in self._handles):
            return False
        if self.exception() is None:
            self._settle()
        return True

    def settle_if_done(self) -> None:
        """See to the results of an operation that perhaps nobody waits for; does not block."""
        with contextlib.suppress(Exception):  # waits for whoever asks
            self.is_completed()
        self._forget_if_done()

    def is_success(self) -> bool:
        """Tell whether the operation is complete and has not failed."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return what went wrong, or None where nothing did so far."""
        try:
            for handle in self._handles:
                if handle.done():
                    handle.wait(0.0)
        except Exception as error:  # noqa: BLE001  translated: the caller asked for it as a value
            # Frames of its traceback hold this operation, and a failed future holds the error.
            return error.with_traceback(None)
        return None

    def result(self) -> Sequence[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the output tensors."""
        return self._task.result

    def synchronize(self) -> None:
        """Do as `wait`: a CPU has no stream to order after."""
        self.wait()

    def source_rank(self) -> int:
        """Return the group rank of the sender, once a receive from any rank is complete."""
        return self._handles[0].source()

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return the future of the output tensors; it is made when first asked for.

        Blocks in a callback of another future until the operation is done: what is made from this
        future there, by `then`, may be waited for there.
        """
        with _once:
            known = self._future is not None
            future = self._future = self._future or _Future(self, self._ordered)
        if not known and all(handle.done() for handle in self._handles):
            self._complete_future()
        elif not known:
            self._when_done(self._complete_future)
        self.finish_if_called_back()
        return future

    def finish_if_called_back(self) -> None:
        """Block until the operation is done, where the caller is a callback of another one.

        The thread that calls callbacks is then busy, so this operation's are called here.
        """
        if not self._completions.is_here():
            return
        for handle in self._handles:
            with contextlib.suppress(Exception):  # a callback tells of it
                handle.wait()
        self._call_back()

    def trace(self, name: str, inputs: Sequence[torch.Tensor]) -> None:
        """Show the operation in PyTorch's profiler until it is complete."""
        self._range = ProfilerRange(name, inputs)
        self._when_done(self._range.end)

    def _when_done(self, callback: Callable[[], None]) -> None:
        """Call a callback when done; the engine reports an operation once, so it is asked once."""
        with _once:
            earlier = self._callbacks
            if earlier is not None:
                self._callbacks = (*earlier, callback)
        if earlier is None:
            callback()
        elif not earlier:
            self._completions.when_done(self._handles, self._call_back)

    def _call_back(self) -> None:
        with _once:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def _complete_future(self) -> None:
        future = self._future
        assert future is not None
        future.pending = None
        error = self.exception()
        if error is not None:
            self._forget_if_done()
            future.set_exception(error)
            return
        try:
            self._settle()
        except Exception as wrong:  # noqa: BLE001  passed on: whoever waits for the future hears of it
            future.set_exception(wrong)
        else:
            future.set_result(self._task.result)

    def _settle(self) -> None:
        if self._copies:
            with _once:
                copy_out(self._copies)
                self._copies = ()
        self._in_flight.pop(self, None)

    def _forget_if_done(self) -> None:
        if all(handle.done() for handle in self._handles):
            self._in_flight.pop(self, None)
