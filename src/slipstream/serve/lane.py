"""Requests of one version of a model on their way to replicas: admitted, put together, run.

A request is admitted if it will be done by its deadline, as runs take what they took before; so
what is admitted is done in time, and the rest knows at once. It waits for others to share its run
at most `delay` seconds, and not at all where a run is full.
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

from slipstream.serve.refusals import Reason, RefusedError
from slipstream.serve.signature import Arrays, Signature, Taken

# Full runs that a replica has in line, for each that it runs at a time.
AHEAD = 2
# Of a run's seconds, what the newest measurement counts for.
_NEWEST = 0.1
# Runs are taken to need so many times their mean, where deadlines are held against them.
_CAUTION = 1.5
# Of the time that a request has left, what its way here and back may take, which is not seen here.
_WAY = 0.15

Ran: TypeAlias = "tuple[Arrays, float]"  # outputs of a run, and the seconds that it took
# Of inputs, and whether the run is known to be alone.
Run: TypeAlias = "Callable[[Arrays, bool], Awaitable[Ran]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """What a lane may hold.

    Args:
        runs: at a time.
        waiting: requests that have not begun.
        delay: seconds that a request may wait for others to share its run.
    """

    runs: int
    waiting: int = 1024
    delay: float = 0.002


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a request.

    Args:
        outputs: of its rows.
        queued: seconds before its run began.
        ran: seconds of the run.
        shared: rows of all requests of the run.
    """

    outputs: Arrays
    queued: float
    ran: float
    shared: int


@dataclass(slots=True, eq=False)
class _Waiting:
    taken: Taken
    until: float
    is_alone: bool
    result: asyncio.Future[Done]
    since: float
    shared: _Shared | None = None


@dataclass(slots=True)
class _Shared:
    """What some requests share: runs one after another, usually one.

    Args:
        together: the requests.
        is_alone: there is no other request.
        inputs: of the runs that are left.
        since: the first began, or was put in line.
        outputs: of those that were.
        run: that is under way, or in line.
        seconds: that they took.
    """

    together: Sequence[_Waiting]
    is_alone: bool
    inputs: Iterator[Arrays]
    since: float
    outputs: list[Arrays] = field(default_factory=list[Arrays])
    run: asyncio.Future[Ran] | None = None
    seconds: float = 0.0

    def give_up(self) -> None:
        """Lets go of the run, if nobody waits for it any more."""
        if self.run is not None and all(each.result.done() for each in self.together):
            self.run.cancel()

    def fail(self, error: BaseException) -> None:
        """Tells all that wait."""
        for each in self.together:
            if not each.result.done():
                each.result.set_exception(error)


class Lane:
    """Requests of one version of a model. Its methods are for one event loop.

    Args:
        signature: of the model.
        run: runs it once on a replica.
        limits: what it may hold.
        seconds: of a run, as measured when it was loaded.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        signature: Signature,
        run: Run,
        limits: LaneLimits,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._signature, self._run, self._limits = signature, run, limits
        self._seconds, self._clock = seconds, clock
        self._queue: deque[_Waiting] = deque()
        self._rows = 0  # that wait
        self._running = 0  # runs
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Runs that are under way."""
        return self._running

    async def ask(self, taken: Taken, until: float, is_alone: bool = False) -> Done:
        """Returns the outputs of a request. Cancelling it takes it out of the queue.

        Args:
            taken: its inputs.
            until: its deadline, as the clock counts.
            is_alone: there is no other request that could share the cores.

        Raises RefusedError if it cannot be done in time, or what a replica raises.
        """
        self._admit(taken, until)
        result = asyncio.get_running_loop().create_future()
        waiting = _Waiting(taken, until, is_alone, result, since=self._clock())
        self._queue.append(waiting)
        self._rows += taken.rows
        self._idle.clear()
        self._pump()
        try:
            return await waiting.result
        except asyncio.CancelledError:
            if waiting.shared is not None:
                waiting.shared.give_up()
            raise

    async def drained(self) -> None:
        """Returns when nothing waits or runs."""
        await self._idle.wait()

    def _admit(self, taken: Taken, until: float) -> None:
        ahead = self._seconds_until(taken.rows)
        if len(self._queue) >= self._limits.waiting:
            raise RefusedError(
                Reason.BUSY, f"{len(self._queue)} requests wait; at most as many may", ahead
            )
        left = (until - self._clock()) * (1 - _WAY)
        if ahead * _CAUTION > left:
            raise RefusedError(
                Reason.BUSY,
                f"it would take about {ahead:.3g} s, and has {max(left, 0):.3g} s; ask again later,"
                " or allow more",
                max(0.0, ahead * _CAUTION - left),
            )

    def _seconds_until(self, rows: int) -> float:
        """Seconds until so many more rows are done."""
        per_run, at_once = self._signature.rows or 1, self._limits.runs
        before = max(self._running - at_once, 0) + 0.5 * min(self._running, at_once)
        runs = math.ceil((self._rows + rows) / per_run) + before
        return math.ceil(runs / at_once) * self._seconds

    def _pump(self) -> None:
        """Begins what can begin."""
        while self._queue and self._running < self._most():
            wait = self._worth_waiting()
            if wait > 0:
                self._wake_in(wait)
                return
            together = self._together()
            if together:
                self._begin(together)
        if not self._queue and not self._running:
            self._idle.set()

    def _most(self) -> int:
        """Runs that a replica may have: those under way, and full ones that are next, as a thread
        that gets free is not to wait for this one to say what follows."""
        is_full = self._rows >= (self._signature.rows or 1)
        return self._limits.runs * (1 + AHEAD * is_full)

    def _worth_waiting(self) -> float:
        """Seconds for which the next run waits for more rows; 0: it begins."""
        if self._rows >= (self._signature.rows or 1):
            return 0.0
        return self._queue[0].since + self._limits.delay - self._clock()

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._pump)

    def _together(self) -> list[_Waiting]:
        """The next requests that share a run; those that gave up or are too late are let go."""
        most, rows = self._signature.rows or 1, 0
        found: list[_Waiting] = []
        now = self._clock()
        while self._queue and (not found or rows + self._queue[0].taken.rows <= most):
            waiting = self._queue.popleft()
            self._rows -= waiting.taken.rows
            if waiting.result.done():
                continue
            if now > waiting.until:
                waiting.result.set_exception(
                    RefusedError(
                        Reason.LATE, f"its deadline passed after {now - waiting.since:.3f} s"
                    )
                )
                continue
            found.append(waiting)
            rows += waiting.taken.rows
        return found

    def _begin(self, together: Sequence[_Waiting]) -> None:
        self._running += 1
        taken = [each.taken for each in together]
        is_alone = len(together) == 1 and together[0].is_alone
        runs = self._signature.runs(taken)
        shared = _Shared(together, is_alone, runs, since=self._clock())
        for each in together:
            each.shared = shared
        self._next(shared)

    def _next(self, shared: _Shared) -> None:
        """Begins the next run that some requests share, or ends what they share."""
        try:
            inputs = next(shared.inputs, None)
            if inputs is not None:
                shared.run = asyncio.ensure_future(self._run(inputs, shared.is_alone))
                shared.run.add_done_callback(partial(self._ran, shared))
                return
            self._finish(shared)
        except Exception as error:  # noqa: BLE001  # of engines: it is each request's own answer
            shared.fail(error)
        self._running -= 1
        self._pump()

    def _ran(self, shared: _Shared, run: asyncio.Future[Ran]) -> None:
        error = asyncio.CancelledError() if run.cancelled() else run.exception()
        if error is None:
            outputs, seconds = run.result()
            shared.outputs.append(outputs)
            shared.seconds += seconds
        else:
            shared.fail(error)
            shared.inputs = iter(())
        self._next(shared)

    def _finish(self, shared: _Shared) -> None:
        if not shared.outputs:
            return
        taken = [each.taken for each in shared.together]
        ran = shared.seconds
        # What passed besides was spent in line.
        begin = max(shared.since, self._clock() - ran)
        self._seconds += _NEWEST * (ran / len(shared.outputs) - self._seconds)
        rows = sum(each.rows for each in taken)
        parted = self._signature.parted(shared.outputs, taken)
        for each, outputs in zip(shared.together, parted, strict=True):
            if not each.result.done():
                each.result.set_result(Done(outputs, begin - each.since, ran, rows))
