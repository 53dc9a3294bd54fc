"""Queue of a process set, to which ranks submit tensors in any order.

The queue starts the operations for the tensors in an order that is the same on all ranks.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from slipstream.comm import Group
from slipstream.comm.negotiator import AgreedTensor, Negotiator, NegotiatorConfig, Outcome
from slipstream.errors import InternalError, PeerTimeoutError, SlipstreamError
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.common.exceptions import HorovodInternalError
from slipstream.horovod.execution import Execution
from slipstream.horovod.fusion import ReadyTensor
from slipstream.horovod.names import NamesInUse
from slipstream.horovod.request import Request, TensorHandle
from slipstream.horovod.timeline import Timeline
from slipstream.settings import HorovodSettings

_STALL_CHECK_SECONDS = 1.0  # time between two checks for stalled tensors; chosen by hand


class TensorQueue:
    """Queue of tensors; its thread starts an operation once the tensor is ready on all ranks.

    All ranks of the process set must create the queue with the same settings. Any thread may use
    the queue.

    Args:
        group: Ranks of the process set.
        settings: Settings of this process.
        arrays: Adapter of the framework.
        timeline: Timeline that records when all ranks have submitted a tensor.
    """

    def __init__(
        self, group: Group, settings: HorovodSettings, arrays: Arrays, timeline: Timeline
    ) -> None:
        self.group, self.arrays = group, arrays
        self._timeline = timeline
        self._negotiator = Negotiator(
            group,
            NegotiatorConfig(
                cycle_seconds=settings.cycle_milliseconds / 1e3,
                stall_after_seconds=settings.stall_after_seconds,
                most_tensors=max(1, settings.known_tensors),
            ),
        )
        self._execution = Execution(group, settings, arrays)
        self._shutdown_seconds = settings.shutdown_after_seconds
        self._names = NamesInUse()
        self._lock = threading.Lock()  # guards the three attributes below
        self._tokens = itertools.count(1)
        self._waiting: dict[int, tuple[Request, TensorHandle]] = {}
        self._joining: list[TensorHandle] = []
        self._thread = threading.Thread(target=self._run, name="slipstream-horovod", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request], *, together: bool = False) -> list[TensorHandle]:
        """Submit tensors of this rank without blocking.

        Args:
            requests: Requests whose names are not in use.
            together: Whether the requests run together or not at all, and share operations (default
                False).

        Raises:
            ValueError: The name of a request is in use.
            HorovodInternalError: This rank has called join(), or the process set has failed.
        """
        if self.arrays.devices is not None:
            self.arrays.devices.prepare(requests)
        tensors = [request.tensor(self.arrays) for request in requests]
        handles = self._names.take(requests)
        with self._lock:
            tokens = [next(self._tokens) for _ in requests]
            for token, request, handle in zip(tokens, requests, handles, strict=True):
                self._waiting[token] = request, handle
        try:
            if together:
                self._negotiator.submit_fused(tensors, tokens)
            else:
                self._negotiator.submit_all(tensors, tokens[0])
        except SlipstreamError as error:
            self._forget(tokens)
            raise HorovodInternalError(str(error)) from error
        return handles

    def join(self) -> int:
        """Declare that this rank has no more data, and block until all ranks have done the same.

        Returns:
            The rank, within the process set, that joined last.

        Raises:
            HorovodInternalError: The process set has failed.
        """
        handle = TensorHandle()
        with self._lock:
            self._joining.append(handle)
        try:
            self._negotiator.join()
        except SlipstreamError as error:
            raise HorovodInternalError(str(error)) from error
        last = int(handle.wait())
        self._names.see_all()
        return last

    def close(self) -> None:
        """Let all waiting operations fail, on this rank and on others, and end the thread."""
        self._negotiator.close()
        self._thread.join()
        self._execution.close()

    def _forget(self, tokens: Sequence[int]) -> None:
        with self._lock:
            for token in tokens:
                waiting = self._waiting.pop(token, None)
                if waiting is not None:
                    self._names.free(waiting[0].name)

    # The methods below run in the thread.

    def _run(self) -> None:
        try:
            self._follow()
        except SlipstreamError as error:
            self._negotiator.close()  # nothing can be submitted any more
            self._fail_all(error)
        except BaseException as error:  # such as too little memory on a GPU
            self._negotiator.close()
            self.group.close()  # other ranks notice it, and do not wait for this one
            self._fail_all(InternalError(f"the Horovod API has failed: {error!r}"))
            raise

    def _follow(self) -> None:
        """Handle the negotiation's outcomes; between two outcomes, check for stalled tensors."""
        next_check = time.monotonic()
        while True:
            outcome = self._negotiator.next(max(0.0, next_check - time.monotonic()))
            self._names.finish_dropped()
            self._execution.release_done()
            if outcome is not None:
                self._handle(outcome)
            else:
                self._check_stalled()
                next_check = time.monotonic() + _STALL_CHECK_SECONDS

    def _check_stalled(self) -> None:
        """Close the group if a tensor has waited too long for other ranks.

        Raises:
            PeerTimeoutError: A tensor has waited too long for other ranks. The other ranks notice
                that the group is closed.
        """
        if not self._shutdown_seconds:
            return
        with self._lock:
            handles = [handle for _, handle in self._waiting.values()]
        oldest = min(handles, key=lambda handle: handle.submitted, default=None)
        if oldest is None:
            return
        age = (time.monotonic_ns() - oldest.submitted) / 1e9
        if age > self._shutdown_seconds:
            self.group.close()
            raise PeerTimeoutError(
                f"rank {self.group.rank} submitted tensor {oldest.name!r} {age:.0f} s ago, and some"
                " ranks still have not; allowed by HOROVOD_STALL_SHUTDOWN_TIME_SECONDS:"
                f" {self._shutdown_seconds:g} s. Collectives fail until shutdown() and init()"
            )

    def _handle(self, outcome: Outcome) -> None:
        for failed in outcome.failed:
            _, handle = self._take_waiting(failed.token)
            try:
                failed.check()
            except SlipstreamError as error:
                handle.fail(error)
        barriers = self._start(outcome)
        if barriers:
            self._names.finish_dropped()
        for handle in barriers:
            handle.begin(None, lambda: None)
        if outcome.last_joined is not None:
            with self._lock:
                joined, self._joining = self._joining, []
            for handle in joined:
                handle.begin(None, lambda last=outcome.last_joined: last)

    def _start(self, outcome: Outcome) -> list[TensorHandle]:
        """Start the operations for tensors that are ready, and return the handles of barriers.

        A barrier needs no operation of the engine, so the caller completes its handle.
        """
        ready = [self._ready(tensor) for tensor in outcome.ready]
        agreed = time.monotonic_ns()
        try:
            self._execution.start(ready, some_joined=outcome.some_joined)
            self._timeline.add(self.group.name, ready, agreed)
        except BaseException as error:
            for member in ready:
                if member.handle is not None:
                    member.handle.fail(InternalError(f"the Horovod API has failed: {error!r}"))
            raise
        return [
            member.handle
            for member in ready
            if member.request.kind == "barrier" and member.handle is not None
        ]

    def _ready(self, agreed: AgreedTensor) -> ReadyTensor:
        if agreed.submitted:
            return ReadyTensor(agreed, *self._take_waiting(agreed.token))
        return ReadyTensor(agreed, Request.without_data(agreed.tensor, self._execution.zeros), None)

    def _take_waiting(self, token: int) -> tuple[Request, TensorHandle]:
        with self._lock:
            return self._waiting.pop(token)

    def _fail_all(self, error: SlipstreamError) -> None:
        with self._lock:
            handles = [handle for _, handle in self._waiting.values()] + self._joining
            self._waiting, self._joining = {}, []
        for handle in handles:
            handle.fail(error)
