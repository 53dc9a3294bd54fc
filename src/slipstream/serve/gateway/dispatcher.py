"""The choice of a replica for each request, the queue before the replicas, and second attempts.

A request is only sent again as long as its client has got no byte of an answer. Inference changes
nothing on a server, so it does not matter whether the lost replica had begun with it.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slipstream.serve.gateway.replica_server import ReplicaServer, ReplicaState
from slipstream.serve.gateway.upstream import AnswerLateError, ReplicaLostError
from slipstream.serve.refusals import Reason, RequestRefusedError

# A request that has lost so many replicas may itself be what ends them.
_MOST_LOST = 5


T = TypeVar("T")


class ReplicaExchange(Protocol[T]):
    """The interface of a request that can be sent to any replica, and sent again."""

    @property
    def begin(self) -> float:
        """Time of the event loop at which the request arrived."""
        ...

    def own_timeout(self) -> float | None:
        """Return the time limit in seconds that the request itself sets; None if it sets none."""
        ...

    async def send(self, replica: ReplicaServer, deadline: float) -> T:
        """Send the request to a replica, and return the answer.

        Args:
            replica: Replica, which is ready.
            deadline: Time of the event loop at which the answer is needed.

        Raises:
            ReplicaLostError: the connection to the replica ended.
            AnswerLateError: the deadline passed.
        """
        ...

    def is_refusal(self, answer: T) -> bool:
        """Return whether the replica refuses what another one may do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """The limits of the dispatcher.

    Args:
        seconds: Time limit of a request in seconds, counted from when a replica can take it; the
            request itself may set a shorter limit.
        start_seconds: Longest time in seconds for which a request waits while no replica is ready.
        open_each: Largest number of requests that one replica has at a time; a replica should see
            them at once, because it refuses early what it cannot finish in time.
        waiting: Largest number of requests that wait for a replica.
    """

    seconds: float = 10.0
    start_seconds: float = 120.0
    open_each: int = 1024
    waiting: int = 1024


class Dispatcher:
    """The queue of requests before the replicas.

    Args:
        limits: Limits of the dispatcher.
        explain: Function that returns why no replica is free, and the seconds after which one may
            be, for clients that are refused.
        retried: Function that is called with the reason of each second attempt.
    """

    def __init__(
        self,
        limits: DispatchLimits,
        explain: Callable[[], tuple[str, float]],
        retried: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._limits, self._explain, self._retried = limits, explain, retried
        self._waiters: collections.deque[asyncio.Future[ReplicaServer]] = collections.deque()
        self.wanted = asyncio.Event()  # set when a request begins to wait
        self.replicas: list[ReplicaServer] = []
        self.open = 0  # requests that have arrived and are not answered

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a replica."""
        return len(self._waiters)

    async def answer(self, exchange: ReplicaExchange[T]) -> T:
        """Return a replica's answer to a request.

        Args:
            exchange: Request of a client.

        Raises:
            RequestRefusedError: no replica answers in time.
        """
        self.open += 1
        try:
            return await self._answer(exchange)
        except AnswerLateError as error:
            raise RequestRefusedError(Reason.LATE, "no replica answered in time") from error
        finally:
            self.open -= 1

    async def _answer(self, exchange: ReplicaExchange[T]) -> T:
        deadline = _Deadline(exchange.begin, exchange.own_timeout(), self._limits)
        tried: set[str] = set()
        lost = load = 0
        refused: T | None = None
        while True:
            replica = self._free(tried)
            if refused is not None and not (replica and _is_worth_it(replica, tried, load)):
                return refused
            if refused is not None:
                self._retried("refused")
            if replica is None:
                replica = await self._wait(deadline)
            else:
                replica.open += 1
            deadline.begin()
            tried.add(replica.name)
            try:
                answer = await self._send(replica, exchange, deadline.at)
            except ReplicaLostError as error:
                lost += 1
                if lost == _MOST_LOST:
                    words = f"{lost} replicas ended during this request; see the log"
                    raise RequestRefusedError(Reason.FAILED, words) from error
                self._retried("lost")
                continue
            if refused is not None or not exchange.is_refusal(answer):
                return answer
            refused, load = answer, replica.open + 1

    def _free(self, tried: Collection[str]) -> ReplicaServer | None:
        """Return the free replica with the fewest requests; one that is new to it comes first."""
        free = [
            each
            for each in self.replicas
            if each.state is ReplicaState.READY and each.open < self._limits.open_each
        ]
        return min(
            free, key=lambda each: (each.name in tried, each.open, each.answered), default=None
        )

    async def _wait(self, deadline: _Deadline) -> ReplicaServer:
        """Wait in the queue for a replica, and return it with the request counted as its own."""
        if len(self._waiters) >= self._limits.waiting:
            reason, retry_after = self._explain()
            words = f"{len(self._waiters)} requests wait, and no more may: {reason}"
            raise RequestRefusedError(Reason.UNAVAILABLE, words, retry_after)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[ReplicaServer] = loop.create_future()
        self._waiters.append(waiter)
        self.wanted.set()
        timer = loop.call_at(deadline.for_a_replica(), _expire, waiter)
        try:
            return await waiter
        except _WaitedTooLongError as error:
            self._waiters.remove(waiter)
            reason, retry_after = self._explain()
            words = f"no replica was free in time: {reason}"
            raise RequestRefusedError(Reason.UNAVAILABLE, words, retry_after) from error
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.done() and not waiter.cancelled():
                self._give_back(waiter.result())
            raise
        finally:
            timer.cancel()

    def _give_back(self, replica: ReplicaServer) -> None:
        replica.open -= 1
        if self._waiters:
            self.wake()

    def wake(self) -> None:
        """Give free replicas to the requests that wait; call it when a replica becomes ready."""
        while self._waiters and (replica := self._free(())) is not None:
            waiter = self._waiters.popleft()
            if not waiter.done():
                replica.open += 1
                waiter.set_result(replica)

    async def _send(
        self, replica: ReplicaServer, exchange: ReplicaExchange[T], deadline: float
    ) -> T:
        try:
            answer = await exchange.send(replica, deadline)
        except ReplicaLostError:
            replica.lost += 1
            replica.suspect()
            raise
        finally:
            self._give_back(replica)
        replica.answered += 1
        return answer


class _WaitedTooLongError(Exception):
    """Answer the client: its request has waited as long as it may."""


class _Deadline:
    """The deadline of a request: it begins when a replica is there.

    Args:
        arrival: Time of the event loop at which the request arrived.
        own: Time limit in seconds that the request itself sets; None if it sets none.
        limits: Limits of the dispatcher.
    """

    def __init__(self, arrival: float, own: float | None, limits: DispatchLimits) -> None:
        self._arrival, self._limits = arrival, limits
        self._own = None if own is None else arrival + own
        self.at = self.for_a_replica()
        self._has_begun = False

    def for_a_replica(self) -> float:
        """Return until when the request may wait for a replica, in the event loop's time."""
        if self._own is not None:
            return self._own
        return self._arrival + max(self._limits.start_seconds, self._limits.seconds)

    def begin(self) -> None:
        """Set the deadline, now that a replica has the request for the first time."""
        if not self._has_begun:
            self._has_begun = True
            at = asyncio.get_running_loop().time() + self._limits.seconds
            self.at = at if self._own is None else min(at, self._own)


def _is_worth_it(replica: ReplicaServer, tried: Collection[str], load: int) -> bool:
    """Return whether a replica may do what another one with so many requests has refused.

    If all are equally busy, second attempts would only double the load.
    """
    return replica.name not in tried and 2 * replica.open < load


def _expire(waiter: asyncio.Future[ReplicaServer]) -> None:
    if not waiter.done():
        waiter.set_exception(_WaitedTooLongError())
