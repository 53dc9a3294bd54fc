"""Work of a collective on tensors of a GPU, with NCCL's semantics: streams wait, the CPU does not.

`wait` makes the current stream wait for the results. If an operation fails, its tensors contain NaN
and the streams go on, so that no stream waits for a rank that is gone. A later `wait`, or a later
operation of the group, raises the error.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import torch
from torch.distributed.distributed_c10d import Work

from slipstream import _core
from slipstream.settings.variables import CudaWait
from slipstream.torch.collectives import Submission
from slipstream.torch.cuda.kinds import kind_of
from slipstream.torch.dynamo import keep_out
from slipstream.torch.tensors import copy_out

_NO_LIMIT = timedelta(0)
_side_streams: dict[torch.device, torch.Stream] = {}


@keep_out
class CudaWork(Work):
    """Work of one or more operations on tensors of one GPU.

    Args:
        submission: Operations that were submitted to the engine.
        in_flight: Works of the group whose memory the engine or the GPU may use. `wait` removes a
            work if all its buffers are on the GPU, because PyTorch reuses their memory only after
            the stream has waited.
        waits: Whether `wait` blocks only the current stream ("stream", the default), or also the
            CPU ("host").
    """

    def __init__(
        self, submission: Submission, in_flight: dict[Any, None], waits: CudaWait = "stream"
    ) -> None:
        super().__init__()
        self._task = submission
        self._handles = cast("Sequence[_core.DeviceHandle]", submission.handles)
        self._device = (submission.inputs or submission.result)[0].device
        self._kind = kind_of(self._device)
        self._buffers = [each for each in submission.buffers if isinstance(each, torch.Tensor)]
        self._in_flight = in_flight
        self._blocks_host = waits == "host"
        self._future: torch.futures.Future[Any] | None = None
        self._lock = threading.Lock()  # guards `_copied`
        # Event after which the results are in the caller's tensors; None until a copy is enqueued.
        self._copied: torch.Event | None = None
        if submission.landed is not None:
            self._copied = submission.landed
        elif not submission.handles:
            self._copied = self._current_stream().record_event()
        in_flight[self] = None
        next(iter(in_flight)).settle_if_done()

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Make the current stream wait for the results.

        Args:
            timeout: Longest time for which the CPU waits until the ranks have exchanged the
                results. With 0 (default), the CPU does not wait, or, if `waits` is "host", waits
                until the operation has ended.

        Returns:
            True.

        Raises:
            PeerError: The operation has failed already, because a peer is gone.
            PeerTimeoutError: The timeout has passed.
        """
        seconds = timeout.total_seconds()
        end = time.monotonic() + seconds
        for handle in self._handles if seconds > 0 or self._blocks_host else ():
            handle.wait(max(1e-3, end - time.monotonic()) if seconds > 0 else 0.0)
        self._wait_on(self._current_stream())
        if not any(buffer.is_cpu for buffer in self._buffers):
            self._in_flight.pop(self, None)
        self._check()
        return True

    def synchronize(self) -> None:
        """Make the current stream wait, as `wait` does."""
        self.wait()

    def block_current_stream(self) -> None:
        """Make the current stream wait, as `wait` does."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the results are in the GPU's memory, or the operation has failed."""
        landed = self._task.landed
        return all(handle.done() for handle in self._handles) and (landed is None or landed.query())

    def is_success(self) -> bool:
        """Return whether the operation is complete and has not failed."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return the error of the operation, or None if it has not failed so far."""
        try:
            self._check()
        except Exception as error:  # noqa: BLE001  returned, as the caller asked
            return error.with_traceback(None)
        return None

    def result(self) -> Sequence[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the output tensors, which are valid on a stream that has waited for them."""
        return self._task.result

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the output tensors, which is complete at once.

        A stream that waits for the future waits for the results. Callbacks run on streams that have
        waited for the results.
        """
        if self._future is None:
            future: torch.futures.Future[Any] = torch.futures.Future(devices=[self._device])
            stream = _side_stream(self._device)
            with self._kind.module.stream(stream):
                self._wait_on(stream)
                future.set_result(self._task.result)
            self._future = future
        return self._future

    def settle_if_done(self) -> None:
        """Release the memory of an operation that is done; does not block."""
        with contextlib.suppress(Exception):  # wait() raises the error of a GPU that has failed
            if self.is_completed():
                self._in_flight.pop(self, None)

    def block(self) -> None:
        """Block the CPU until the results are exchanged, or the operation has failed."""
        with contextlib.suppress(Exception):  # a later call raises the error
            for handle in self._handles:
                handle.wait()

    def release(self) -> None:
        """Make the current stream wait, so that it does not use the memory of the tensors before.

        A failed operation raises no error.
        """
        with contextlib.suppress(Exception):  # a later call raises the error
            self._wait_on(self._current_stream())

    def _current_stream(self) -> torch.Stream:
        return self._kind.module.current_stream(self._device)

    def _wait_on(self, stream: torch.Stream) -> None:
        for buffer in self._buffers:
            if not buffer.is_cpu:
                buffer.record_stream(stream)
        with self._lock:
            if self._copied is not None:
                stream.wait_event(self._copied)
                return
            for handle in self._handles:
                handle.wait_on(self._kind.handle(stream))
            if self._task.copies:  # copied once, because the caller may change the tensors later
                with self._kind.module.stream(stream):
                    copy_out(self._task.copies)
                for target, source in self._task.copies:
                    target.record_stream(stream)
                    source.record_stream(stream)
                self._copied = stream.record_event()

    def _check(self) -> None:
        for handle in self._handles:
            handle.check()


def _side_stream(device: torch.device) -> torch.Stream:
    """Return the stream of a GPU on which futures are completed."""
    stream = _side_streams.get(device)
    if stream is None:
        stream = _side_streams[device] = kind_of(device).module.Stream(device)
    return stream
