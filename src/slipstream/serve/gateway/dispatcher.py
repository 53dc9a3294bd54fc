"""The choice of a replica for each request, the queue before the replicas, and second attempts.

A request is only sent again as long as its client has got no byte of an answer. Inference changes
nothing on a server, so it does not matter whether the lost replica had begun with it.
"""

from __future__ import annotations

import asyncio
import collections
import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from slipstream.serve.gateway.downstream import ClientRequest
from slipstream.serve.gateway.upstream import (
    HOP_BY_HOP,
    AnswerLateError,
    Buffer,
    ConnectionPool,
    ReplicaAnswer,
    ReplicaLostError,
)
from slipstream.serve.protocol.messages import JSON_LENGTH, timeout_of
from slipstream.serve.refusals import Reason, RequestRefusedError

# A request that has lost so many replicas may itself be what ends them.
_MOST_LOST = 5
# Statuses with which a replica refuses what another one may do.
_REFUSED = frozenset({Reason.BUSY.status, 502, Reason.UNAVAILABLE.status, Reason.LATE.status})
_JSON_LENGTH = JSON_LENGTH.encode()


class ReplicaState(enum.Enum):
    """A stage in the life of a replica."""

    STARTING = "starting"
    READY = "ready"
    SUSPECT = "suspect"  # a connection was lost, or it is silent: it gets no new requests
    DRAINING = "draining"  # it gets no new requests, and ends when it has answered the open ones
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class ReplicaServer:
    """A replica: a server of its own, on this or another host.

    Args:
        name: Name of the replica.
        generation: Number of the generation of model files that it serves.
        since: Time of `time.monotonic` at which its start began.
        state: Stage of its life (default STARTING).
        host: Name of its host; "" until it has started.
        open: Number of requests that it has and has not answered.
        answered: Number of requests that it has answered.
        lost: Number of requests that were lost with a connection to it.
    """

    name: str
    generation: int
    since: float
    state: ReplicaState = ReplicaState.STARTING
    host: str = ""
    open: int = 0
    answered: int = 0
    lost: int = 0
    start_seconds: float = 0.0
    _pool: ConnectionPool | None = None
    suspected: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pool(self) -> ConnectionPool:
        """Connections to the replica, which has started."""
        assert self._pool is not None, f"{self.name} has not started"
        return self._pool

    def connect(self, pool: ConnectionPool) -> None:
        """Take note of the address at which the replica can be reached."""
        self._pool, self.state = pool, ReplicaState.READY

    def suspect(self) -> None:
        """Give the replica no new requests until it has answered a probe."""
        if self.state is ReplicaState.READY:
            self.state = ReplicaState.SUSPECT
        self.suspected.set()

    def disconnect(self) -> None:
        """End all connections; requests under way are sent to other replicas."""
        self.state = ReplicaState.ENDED
        if self._pool is not None:
            self._pool.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """The limits of the dispatcher.

    Args:
        seconds: Time limit of a request in seconds, counted from when a replica can take it; the
            request itself may set a shorter limit.
        start_seconds: Longest time in seconds for which a request waits while no replica is ready.
        open_each: Largest number of requests that one replica has at a time.
        waiting: Largest number of requests that wait for a replica.
    """

    seconds: float = 10.0
    start_seconds: float = 120.0
    open_each: int = 64
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

    async def answer(self, request: ClientRequest) -> ReplicaAnswer:
        """Return a replica's answer to a request.

        Args:
            request: Request of a client.

        Raises:
            RequestRefusedError: no replica answers in time.
        """
        self.open += 1
        try:
            return await self._answer(request)
        except AnswerLateError as error:
            raise RequestRefusedError(Reason.LATE, "no replica answered in time") from error
        finally:
            self.open -= 1

    async def _answer(self, request: ClientRequest) -> ReplicaAnswer:
        deadline = _Deadline(request, self._limits)
        tried: set[str] = set()
        lost = 0
        refused: ReplicaAnswer | None = None
        while True:
            replica = self._free(tried)
            if refused is not None and (replica is None or replica.name in tried):
                return refused
            if replica is None:
                replica = await self._wait(deadline)
            else:
                replica.open += 1
            deadline.begin()
            tried.add(replica.name)
            try:
                answer = await self._send(replica, request, deadline.at)
            except ReplicaLostError as error:
                lost += 1
                if lost == _MOST_LOST:
                    words = f"{lost} replicas ended during this request; see the log"
                    raise RequestRefusedError(Reason.FAILED, words) from error
                self._retried("lost")
                continue
            if answer.status not in _REFUSED or refused is not None:
                return answer
            refused = answer
            self._retried("refused")

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
        self, replica: ReplicaServer, request: ClientRequest, deadline: float
    ) -> ReplicaAnswer:
        pool = replica.pool
        try:
            connection = await pool.acquire(deadline)
            head = request_head(request, pool.address.token)
            answer = await connection.exchange(
                head, request.body, deadline, has_body=request.method != b"HEAD"
            )
        except ReplicaLostError:
            replica.lost += 1
            replica.suspect()
            raise
        finally:
            self._give_back(replica)
        pool.release(connection)
        replica.answered += 1
        return replace(answer, replica=replica.name)


class _WaitedTooLongError(Exception):
    """Answer the client: its request has waited as long as it may."""


class _Deadline:
    """The deadline of a request: it begins when a replica is there.

    Args:
        request: Request, which may set a limit of its own from its arrival on.
        limits: Limits of the dispatcher.
    """

    def __init__(self, request: ClientRequest, limits: DispatchLimits) -> None:
        self._request, self._limits = request, limits
        own = _own_timeout(request)
        self._own = None if own is None else request.begin + own
        self.at = self.for_a_replica()
        self._has_begun = False

    def for_a_replica(self) -> float:
        """Return until when the request may wait for a replica, in the event loop's time."""
        if self._own is not None:
            return self._own
        return self._request.begin + max(self._limits.start_seconds, self._limits.seconds)

    def begin(self) -> None:
        """Set the deadline, now that a replica has the request for the first time."""
        if not self._has_begun:
            self._has_begun = True
            at = asyncio.get_running_loop().time() + self._limits.seconds
            self.at = at if self._own is None else min(at, self._own)


def request_head(request: ClientRequest, token: str) -> bytes:
    """Return request line and header fields with which a request is passed on.

    Args:
        request: Request of a client.
        token: Token that the replica demands.
    """
    fields = [
        b"%b: %b\r\n" % each
        for each in request.fields
        if each[0] not in HOP_BY_HOP and each[0] != b"authorization"
    ]
    return b"".join(
        (
            b"%b %b HTTP/1.1\r\n" % (request.method, request.target),
            *fields,
            b"authorization: Bearer %b\r\n" % token.encode(),
            b"content-length: %d\r\n\r\n" % request.num_bytes,
        )
    )


def _own_timeout(request: ClientRequest) -> float | None:
    """Return the time limit in seconds that the request itself sets; None if it sets none."""
    length = request.field(_JSON_LENGTH)
    begun = _first_piece(request.body)
    if not length or b'"timeout"' not in begun:
        return None
    try:
        return timeout_of(begun, length)
    except RequestRefusedError:
        return None  # the replica tells the client what is wrong with it


def _first_piece(body: Sequence[Buffer]) -> bytearray:
    return bytearray(body[0][:4096]) if body else bytearray()


def _expire(waiter: asyncio.Future[ReplicaServer]) -> None:
    if not waiter.done():
        waiter.set_exception(_WaitedTooLongError())
