"""One process set's tensors: submitted in any order, run in the one that its ranks agree on."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from slipstream.comm import Group
from slipstream.comm.negotiator import AgreedTensor, Negotiator, NegotiatorConfig, Outcome
from slipstream.errors import InternalError, PeerTimeoutError, SlipstreamError
from slipstream.horovod.common.exceptions import HorovodInternalError
from slipstream.horovod.execution import Execution
from slipstream.horovod.fusion import Ready
from slipstream.horovod.names import NamesInUse
from slipstream.horovod.request import Arrays, Request, TensorHandle
from slipstream.horovod.timeline import Timeline
from slipstream.settings import HorovodSettings

_TICK_SECONDS = 1.0


class TensorQueue:
    """Queue of a framework's tensors; a thread starts those that are ready on all ranks.

    Members of the set make it alike. Safe to use from any thread.

    Args:
        group: Ranks of the process set.
        settings: Settings of this process.
        arrays: Array functions of the framework; a rank that has joined makes zeros with them.
        timeline: Timeline that records when all ranks have a tensor.
    """

    def __init__(
        self, group: Group, settings: HorovodSettings, arrays: Arrays, timeline: Timeline
    ) -> None:
        self.group = group
        self._arrays, self._timeline = arrays, timeline
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
        self._lock = threading.Lock()  # guards the three below
        self._tokens = itertools.count(1)
        self._waiting: dict[int, tuple[Request, TensorHandle]] = {}
        self._joining: list[TensorHandle] = []
        self._thread = threading.Thread(target=self._run, name="slipstream-horovod", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request], *, together: bool = False) -> list[TensorHandle]:
        """Submit tensors of this rank without blocking.

        Args:
            requests: Requests whose names are not in use.
            together: Whether they are ready together or not at all, and are reduced as one.

        Raises:
            ValueError: a name is that of a tensor under way.
            HorovodInternalError: this rank has joined, or the process set has failed.
        """
        tensors = [each.tensor() for each in requests]
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
        """Say that this rank has no more data and block until no rank has.

        Returns:
            The rank in the set that was the last.
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
        """End all waiting operations, here and on the other ranks."""
        self._negotiator.close()
        self._thread.join()

    def _forget(self, tokens: Sequence[int]) -> None:
        with self._lock:
            for token in tokens:
                taken = self._waiting.pop(token, None)
                if taken is not None:
                    self._names.free(taken[0].name)

    # The thread.

    def _run(self) -> None:
        try:
            self._follow()
        except SlipstreamError as error:
            self._negotiator.close()  # nothing is accepted any more
            self._fail_all(error)
        except BaseException as error:
            self._negotiator.close()
            self._fail_all(InternalError(f"the Horovod API has failed: {error!r}"))
            raise

    def _follow(self) -> None:
        """Take outcomes, and once in a while, when there is none, look after what remains."""
        next_look = time.monotonic()
        while True:
            outcome = self._negotiator.next(max(0.0, next_look - time.monotonic()))
            self._names.finish_dropped()
            if outcome is not None:
                self._take(outcome)
            else:
                self._check_stalled()
                next_look = time.monotonic() + _TICK_SECONDS

    def _check_stalled(self) -> None:
        """Give up if a tensor has waited for other ranks for too long.

        Raises:
            PeerTimeoutError: so it is; the group is closed, and the other ranks hear of it.
        """
        if not self._shutdown_seconds:
            return
        with self._lock:
            handles = [handle for _, handle in self._waiting.values()]
        oldest = min(handles, key=lambda each: each.submitted, default=None)
        if oldest is None:
            return
        age = (time.monotonic_ns() - oldest.submitted) / 1e9
        if age > self._shutdown_seconds:
            self.group.close()
            raise PeerTimeoutError(
                f"rank {self.group.rank} has had tensor {oldest.name!r} for {age:.0f} s, and some"
                " ranks still have not: longer than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, which is"
                f" {self._shutdown_seconds:g}. Collectives fail until shutdown() and init()"
            )

    def _take(self, outcome: Outcome) -> None:
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
        """Start tensors that are ready, and return the handles of barriers, which are complete."""
        ready = [self._ready(each) for each in outcome.ready]
        agreed = time.monotonic_ns()
        try:
            self._execution.start(ready, some_joined=outcome.some_joined)
            self._timeline.add(self.group.name, ready, agreed)
        except BaseException as error:
            for each in ready:
                if each.handle is not None:
                    each.handle.fail(InternalError(f"the Horovod API has failed: {error!r}"))
            raise
        return [
            each.handle
            for each in ready
            if each.request.kind == "barrier" and each.handle is not None
        ]

    def _ready(self, agreed: AgreedTensor) -> Ready:
        if agreed.submitted:
            return Ready(agreed, *self._take_waiting(agreed.token))
        return Ready(agreed, Request.without_data(agreed.tensor, self._arrays), None)

    def _take_waiting(self, token: int) -> tuple[Request, TensorHandle]:
        with self._lock:
            return self._waiting.pop(token)

    def _fail_all(self, error: SlipstreamError) -> None:
        with self._lock:
            handles = [handle for _, handle in self._waiting.values()] + self._joining
            self._waiting, self._joining = {}, []
        for handle in handles:
            handle.fail(error)
