"""The dynamic batcher: it admits requests for one version of a model and runs them in batches.

A request is admitted only if the batcher expects to finish it before its deadline; the estimate
uses the measured duration of earlier runs. A request that cannot be finished in time is refused at
once. An admitted request waits at most `delay` seconds for other requests to join its batch; a full
batch does not wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from slipstream.serve.refusals import Reason, RequestRefusedError
from slipstream.serve.signature import Arrays, RequestInputs, Signature

# Number of full runs that may be queued at a replica for each run that it can execute at the same
# time. A thread that becomes free then need not wait for the event loop, which gives 5 % more
# results per second (docs/performance.md).
AHEAD = 2
# Smoothing factor of the moving average of the run time. Chosen by hand, not measured.
_SMOOTHING = 0.1
# The batcher tracks a safety factor: the 99th percentile of the ratio between the actual and the
# expected time of a request. It admits a request only if the expected time multiplied by the factor
# is left before the deadline. The factor is adapted by stochastic approximation (Robbins and Monro,
# 1951): a request with a higher ratio raises the factor by 0.99 steps, any other request lowers it
# by 0.01 steps. With a fixed factor of 1.5, 97.7 % of the results were in time on a machine of 2
# cores (docs/performance.md).
_QUANTILE = 0.99
_STEP = 0.03  # chosen by hand, not measured
_FIRST_FACTOR, _LEAST_FACTOR, _MOST_FACTOR = 1.5, 1.2, 4.0  # chosen by hand, not measured
# Share of a request's remaining time that is reserved for the transfer between client and server,
# which the batcher cannot measure. Without this reserve, 97.6 % of the results were in time
# (docs/performance.md).
_TRANSFER_SHARE = 0.15

RunResult: TypeAlias = "tuple[Arrays, float]"  # the outputs of a run, and its duration in seconds
# A function that takes the inputs of a run, and whether no other run shares the cores.
Run: TypeAlias = "Callable[[Arrays, bool], Awaitable[RunResult]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherLimits:
    """The limits of a batcher.

    Args:
        runs: Largest number of runs that execute at the same time (one run is one call of the
            model).
        waiting: Largest number of requests that may wait in the queue (default 1024).
        delay: Longest time in seconds that a request waits for other requests to join its batch
            (default 0.002).
    """

    runs: int
    waiting: int = 1024
    delay: float = 0.002


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """The result of a request.

    Args:
        outputs: Outputs of the model for the rows of the request.
        queue_seconds: Time in seconds that the request waited before its batch started.
        run_seconds: Time in seconds that the runs of the batch took.
        batch_rows: Number of rows of all requests in the batch.
    """

    outputs: Arrays
    queue_seconds: float
    run_seconds: float
    batch_rows: int


@dataclass(slots=True, eq=False)
class _QueuedRequest:
    inputs: RequestInputs
    deadline: float
    is_alone: bool
    result: asyncio.Future[InferenceResult]
    submitted: float
    limit: float  # seconds in which 99 % of such requests should be finished
    batch: _Batch | None = None


@dataclass(slots=True)
class _Batch:
    """Requests that are executed together, usually in one run.

    A request with more rows than the model takes at once needs several runs, one after another.

    Args:
        requests: Requests of the batch.
        is_alone: Whether the batch has only one request, and no other request for this version of
            the model was open when that request was submitted.
        inputs: Inputs of the runs that have not been started.
        started: Time on the batcher's clock at which the first run was handed to a replica.
        outputs: Outputs of the runs that are finished.
        run: Run that is executing, or that is queued at a replica.
        seconds: Time in seconds that the finished runs took together.
    """

    requests: Sequence[_QueuedRequest]
    is_alone: bool
    inputs: Iterator[Arrays]
    started: float
    outputs: list[Arrays] = field(default_factory=list[Arrays])
    run: asyncio.Future[RunResult] | None = None
    seconds: float = 0.0

    def cancel_if_abandoned(self) -> None:
        """Cancel the current run if no request waits for it any more."""
        if self.run is not None and all(request.result.done() for request in self.requests):
            self.run.cancel()

    def fail(self, error: BaseException) -> None:
        """Pass an error to every request of the batch that still waits for its result."""
        for request in self.requests:
            if not request.result.done():
                request.result.set_exception(error)


class Batcher:
    """A queue of requests for one version of a model.

    The methods of a batcher must be called in one event loop.

    Args:
        signature: Inputs and outputs of the model.
        run: Function that executes one run on a replica.
        limits: Limits of the queue and of the runs.
        seconds: Duration of a run in seconds, as it was measured when the model was loaded.
        clock: Function that returns monotonic seconds (default `time.monotonic`).
    """

    def __init__(
        self,
        signature: Signature,
        run: Run,
        limits: BatcherLimits,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._signature, self._run, self._limits = signature, run, limits
        self._seconds, self._clock = seconds, clock
        self._factor = _FIRST_FACTOR
        self._queue: deque[_QueuedRequest] = deque()
        self._queued_rows = 0
        self._running = 0  # runs that are executing or queued at a replica
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Number of runs that are executing, or that are queued at a replica."""
        return self._running

    async def submit(
        self, inputs: RequestInputs, deadline: float, is_alone: bool = False
    ) -> InferenceResult:
        """Queue a request, wait for its result and return the result.

        Cancelling this call removes the request from the queue.

        Args:
            inputs: Checked inputs of the request.
            deadline: Time, on the batcher's clock, at which the result is needed.
            is_alone: Whether no other request for this version of the model is open (default
                False).

        Raises RequestRefusedError if the request cannot be finished in time, and the replica's
        error if its run fails.
        """
        expected = self.check_admission(inputs.rows, deadline)
        limit = self._factor * (expected + self._limits.delay)
        result = asyncio.get_running_loop().create_future()
        request = _QueuedRequest(
            inputs, deadline, is_alone, result, submitted=self._clock(), limit=limit
        )
        self._queue.append(request)
        self._queued_rows += inputs.rows
        self._idle.clear()
        self._start_runs()
        try:
            return await request.result
        except asyncio.CancelledError:
            if request.batch is not None:
                request.batch.cancel_if_abandoned()
            raise

    def check_admission(self, rows: int, deadline: float) -> float:
        """Return the expected number of seconds until a request that arrives now is finished.

        Args:
            rows: Number of rows of the request.
            deadline: Time, on the batcher's clock, at which the result is needed.

        Raises RequestRefusedError if the request cannot be finished in time.
        """
        expected = self._expected_seconds(rows)
        if len(self._queue) >= self._limits.waiting:
            raise RequestRefusedError(
                Reason.BUSY,
                f"{len(self._queue)} requests wait, and no more may; send it again later",
                expected,
            )
        left = (deadline - self._clock()) * (1 - _TRANSFER_SHARE)
        if expected * self._factor > left:
            raise RequestRefusedError(
                Reason.BUSY,
                f"the request would take about {expected:.3g} s, but {max(left, 0):.3g} s are left"
                " before its deadline; send it again later, or allow a longer timeout",
                max(0.0, expected * self._factor - left),
            )
        return expected

    async def drained(self) -> None:
        """Wait until no request is queued and no run is executing."""
        await self._idle.wait()

    def _learn_factor(self, request: _QueuedRequest) -> None:
        """Adapt the safety factor, by which estimates are multiplied, after a request has ended."""
        exceeds = self._clock() - request.submitted > request.limit
        self._factor += _STEP * (exceeds - (1 - _QUANTILE))
        self._factor = min(max(self._factor, _LEAST_FACTOR), _MOST_FACTOR)

    def _expected_seconds(self, rows: int) -> float:
        """Estimate the time in seconds until `rows` additional rows are finished."""
        rows_per_run, at_once = self._signature.rows or 1, self._limits.runs
        # A run that is executing is half finished on average.
        before = max(self._running - at_once, 0) + 0.5 * min(self._running, at_once)
        runs = math.ceil((self._queued_rows + rows) / rows_per_run) + before
        return math.ceil(runs / at_once) * self._seconds

    def _start_runs(self) -> None:
        """Start every batch that is full or has waited long enough, while replicas are free."""
        while self._queue and self._running < self._max_running():
            wait = self._seconds_to_wait()
            if wait > 0:
                self._wake_in(wait)
                return
            requests = self._next_requests()
            if requests:
                self._start(requests)
        if not self._queue and not self._running:
            self._idle.set()

    def _max_running(self) -> int:
        """Return the largest number of runs that may be executing or queued at the replicas.

        A full batch may be queued behind the runs that execute, so that a thread that becomes free
        has work without waiting for the event loop.
        """
        is_full = self._queued_rows >= (self._signature.rows or 1)
        return self._limits.runs * (1 + AHEAD * is_full)

    def _seconds_to_wait(self) -> float:
        """Return the seconds until the next batch starts; 0 or less if it can start now."""
        if self._queued_rows >= (self._signature.rows or 1):
            return 0.0
        return self._queue[0].submitted + self._limits.delay - self._clock()

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start_runs)

    def _next_requests(self) -> list[_QueuedRequest]:
        """Take the requests of the next batch out of the queue.

        Cancelled requests are dropped, and requests whose deadline has passed are refused.
        """
        max_rows, rows = self._signature.rows or 1, 0
        requests: list[_QueuedRequest] = []
        now = self._clock()
        while self._queue and (not requests or rows + self._queue[0].inputs.rows <= max_rows):
            request = self._queue.popleft()
            self._queued_rows -= request.inputs.rows
            if request.result.done():
                continue
            if now > request.deadline:
                self._learn_factor(request)
                waited = now - request.submitted
                words = f"the deadline of the request passed after {waited:.3f} s in the queue"
                request.result.set_exception(RequestRefusedError(Reason.LATE, words))
                continue
            requests.append(request)
            rows += request.inputs.rows
        return requests

    def _start(self, requests: Sequence[_QueuedRequest]) -> None:
        self._running += 1
        is_alone = len(requests) == 1 and requests[0].is_alone
        runs = self._signature.runs([request.inputs for request in requests])
        batch = _Batch(requests, is_alone, runs, started=self._clock())
        for request in requests:
            request.batch = batch
        self._continue(batch)

    def _continue(self, batch: _Batch) -> None:
        """Start the next run of a batch, or finish the batch after its last run."""
        try:
            inputs = next(batch.inputs, None)
            if inputs is not None:
                batch.run = asyncio.ensure_future(self._run(inputs, batch.is_alone))
                batch.run.add_done_callback(partial(self._end_run, batch))
                return
            self._finish(batch)
        except Exception as error:  # noqa: BLE001  # an engine's error answers each request
            batch.fail(error)
        self._running -= 1
        self._start_runs()

    def _end_run(self, batch: _Batch, run: asyncio.Future[RunResult]) -> None:
        error = asyncio.CancelledError() if run.cancelled() else run.exception()
        if error is None:
            outputs, seconds = run.result()
            batch.outputs.append(outputs)
            batch.seconds += seconds
        else:
            batch.fail(error)
            batch.inputs = iter(())
        self._continue(batch)

    def _finish(self, batch: _Batch) -> None:
        if not batch.outputs:
            return
        inputs = [request.inputs for request in batch.requests]
        # Between its start and its runs, the batch waited in the replica's queue.
        started = max(batch.started, self._clock() - batch.seconds)
        newest = batch.seconds / len(batch.outputs)
        self._seconds += _SMOOTHING * (newest - self._seconds)
        rows = sum(each.rows for each in inputs)
        for request, outputs in zip(
            batch.requests, self._signature.split(batch.outputs, inputs), strict=True
        ):
            if not request.result.done():
                self._learn_factor(request)
                queued = started - request.submitted
                request.result.set_result(InferenceResult(outputs, queued, batch.seconds, rows))
