"""The replicas behind a gateway: started, probed, replaced and ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.errors import SlipstreamError
from slipstream.serve.gateway.dispatcher import Dispatcher
from slipstream.serve.gateway.generations import Generation
from slipstream.serve.gateway.replica_server import ReplicaServer, ReplicaState
from slipstream.serve.gateway.starters import ReplicaStarter
from slipstream.serve.gateway.upstream import (
    AnswerLateError,
    ConnectionPool,
    ReplicaLostError,
    ReplicaSilentError,
)

_LOG = logging.getLogger(__name__)
_TICK_SECONDS = 0.25
_PROBE_SECONDS = 0.5  # time between two probes of a replica
# A replica that is silent on all connections for so long gets no new requests, and then is lost. A
# host that is switched off says nothing, and another replica must still answer its requests within
# the default time limit of 10 s. Chosen by hand, above the pauses of a host whose processors are
# all busy.
_SUSPECT_SECONDS = 1.5
_LOST_SECONDS = 4.0
_DRAIN_PERIOD = 0.1  # seconds between two looks at a replica that has open requests
_AGAIN_SECONDS = 0.05  # time until a probe that follows one without an answer
_MOST_REFUSED = 3  # probes in a row that find no listener before a replica is lost
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # pauses after starts that fail
_ACTIVE = (ReplicaState.STARTING, ReplicaState.READY, ReplicaState.SUSPECT)
_PROBE = b"GET /v2/health/ready HTTP/1.1\r\nhost: replica\r\n\r\n"


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """The time limits of replicas.

    Args:
        start_seconds: Longest time in seconds that a replica may take to start.
        drain_seconds: Longest time in seconds that a replica gets for its open requests.
    """

    start_seconds: float = 120.0
    drain_seconds: float = 30.0


class Fleet:
    """The replicas.

    Args:
        starter: Object that starts the processes.
        dispatcher: Dispatcher, whose list of replicas this object keeps.
        generation: Model files that new replicas serve.
        limits: Time limits.
        tell: Function that is called with one line about each event.
    """

    def __init__(
        self,
        starter: ReplicaStarter,
        dispatcher: Dispatcher,
        generation: Generation,
        limits: FleetLimits,
        tell: Callable[[str], None],
    ) -> None:
        self._starter, self._dispatcher, self._limits, self._tell = (
            starter, dispatcher, limits, tell,
        )  # fmt: skip
        self.generation = generation
        self._good: Generation | None = None  # the newest one that a replica has served
        self.target = 0
        self.problem = ""  # why the last start failed
        self.failures = 0  # starts in a row that failed
        self._pause_until = 0.0
        self._numbers = itertools.count(1)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._is_closing = False

    @property
    def replicas(self) -> list[ReplicaServer]:
        """All replicas that have not ended."""
        return self._dispatcher.replicas

    def generations(self) -> set[int]:
        """Return the numbers of the generations that replicas serve or may serve."""
        numbers = {self.generation.number, *(each.generation for each in self.replicas)}
        return numbers if self._good is None else numbers | {self._good.number}

    def count(self, *states: ReplicaState) -> int:
        """Return the number of replicas in some states."""
        return sum(each.state in states for each in self.replicas)

    def change(self) -> None:
        """Let `run` look at the target at once."""
        self._changed.set()

    def update(self, generation: Generation) -> None:
        """Replace all replicas one after the other by those that serve a new generation."""
        self.generation = generation
        self.failures, self._pause_until = 0, 0.0
        self._tell(f"model files have changed: generation {generation.number} replaces the others")
        self.change()

    async def run(self) -> None:
        """Keep as many replicas as `target` says, until `close` is called."""
        while not self._is_closing:
            self._adjust()
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _TICK_SECONDS)

    async def close(self) -> None:
        """End all replicas."""
        self._is_closing = True
        tasks = list(self._tasks.values())
        for replica in self.replicas:
            replica.state = ReplicaState.DRAINING
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._starter.close()

    # ---- how many ----

    def _adjust(self) -> None:
        """Start or drain replicas; in an update, one more than the target may run."""
        active = [each for each in self.replicas if each.state in _ACTIVE]
        outdated = [each for each in active if each.generation != self.generation.number]
        wanted = self.target + bool(outdated and self.target)
        if len(active) < wanted:
            if time.monotonic() >= self._pause_until:
                for _ in range(1 if outdated else wanted - len(active)):
                    self._start()
        elif len(active) > wanted:
            for replica in _worst(active, self.generation)[: len(active) - wanted]:
                self._drain(replica)
        elif outdated and all(
            each.state is ReplicaState.READY for each in active if each not in outdated
        ):
            self._drain(_worst(outdated, self.generation)[0])

    def _start(self) -> None:
        name = f"replica-{next(self._numbers)}"
        replica = ReplicaServer(name, self.generation.number, time.monotonic())
        self.replicas.append(replica)
        self._tasks[name] = task = asyncio.create_task(self._live(replica, self.generation))
        task.add_done_callback(lambda _: self._forget(replica))

    def _forget(self, replica: ReplicaServer) -> None:
        """Drop a replica from all lists, also if its task was cancelled before it began."""
        replica.disconnect()
        self._tasks.pop(replica.name, None)
        if replica in self.replicas:
            self.replicas.remove(replica)
        self.change()

    def _drain(self, replica: ReplicaServer) -> None:
        was_starting = replica.state is ReplicaState.STARTING
        replica.state = ReplicaState.DRAINING
        replica.suspected.set()
        if was_starting:
            self._tasks[replica.name].cancel()

    # ---- the life of one replica ----

    async def _live(self, replica: ReplicaServer, generation: Generation) -> None:
        """Start a replica, watch it, and end it."""
        try:
            await self._launch(replica, generation)
            await self._watch(replica)
        except (SlipstreamError, OSError, asyncio.TimeoutError) as error:
            self._failed(replica, generation, error)
        finally:
            was_draining = replica.state is ReplicaState.DRAINING
            replica.disconnect()
            self.replicas.remove(replica)
            self.change()
            if was_draining:
                await self._starter.stop(replica.name, self._limits.drain_seconds)
            else:
                await self._starter.lose(replica.name)

    async def _launch(self, replica: ReplicaServer, generation: Generation) -> None:
        address = await asyncio.wait_for(
            self._starter.start(replica.name, generation), self._limits.start_seconds
        )
        replica.host = self._starter.list().get(replica.name, "")
        pool = ConnectionPool(address)
        await _probe(pool, self._limits.start_seconds)
        replica.connect(pool)
        replica.start_seconds = time.monotonic() - replica.since
        self.failures, self.problem, self._good = 0, "", generation
        where = f" on {replica.host}" if replica.host else ""
        self._tell(f"{replica.name}{where} is ready after {replica.start_seconds:.1f} s")
        self._dispatcher.wake()
        self.change()

    def _failed(self, replica: ReplicaServer, generation: Generation, error: Exception) -> None:
        """Take note of a replica that did not start or was lost."""
        if replica.start_seconds:
            self._tell(f"{replica.name} is lost: {error}")
            return
        words = str(error) or f"it took longer than {self._limits.start_seconds:g} s"
        self._tell(f"{replica.name} did not start: {words}")
        self.problem = words
        if generation is self.generation and self._good not in (None, generation):
            assert self._good is not None
            self._tell(f"generation {generation.number} cannot be served; the old one stays")
            self.generation = self._good
            return
        pause = _RETRY_SECONDS[min(self.failures, len(_RETRY_SECONDS) - 1)]
        self.failures += 1
        self._pause_until = time.monotonic() + pause

    async def _watch(self, replica: ReplicaServer) -> None:
        """Probe a replica until it is drained; raise ReplicaLostError if it is lost before."""
        probes = _Probes()
        while replica.state is not ReplicaState.DRAINING:
            await self._look(replica, probes)
            pause = _PROBE_SECONDS if probes.are_good else _AGAIN_SECONDS
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(replica.suspected.wait(), pause)
            replica.suspected.clear()
        begin = time.monotonic()
        while replica.open and time.monotonic() - begin < self._limits.drain_seconds:
            await self._look(replica, probes)
            await asyncio.sleep(_DRAIN_PERIOD)

    async def _look(self, replica: ReplicaServer, probes: _Probes) -> None:
        """Probe a replica once; raise ReplicaLostError if it is lost."""
        pool = replica.pool
        try:
            await _probe(pool, _SUSPECT_SECONDS)
        except (AnswerLateError, ReplicaSilentError):
            probes.refused, probes.late = 0, probes.late + 1
        except ReplicaLostError:
            probes.refused, probes.late = probes.refused + 1, 0
        else:
            probes.refused = probes.late = 0
            if replica.state is ReplicaState.SUSPECT:
                replica.state = ReplicaState.READY
                self._dispatcher.wake()
            return
        silence = time.monotonic() - pool.heard
        if probes.refused or silence > _SUSPECT_SECONDS:
            replica.suspect()
        if replica.name not in self._starter.list():
            raise ReplicaLostError("its process has ended")
        if probes.refused >= _MOST_REFUSED:
            raise ReplicaLostError("it accepts no connections")
        # If this process itself was stopped for a while, only the first probe afterwards is late.
        if probes.late > 1 and silence > _LOST_SECONDS:
            raise ReplicaLostError(f"it has been silent for {silence:.1f} s")


@dataclass(slots=True)
class _Probes:
    """The probes in a row that found no listener, and those that got no answer in time."""

    refused: int = 0
    late: int = 0

    @property
    def are_good(self) -> bool:
        return not (self.refused or self.late)


async def _probe(pool: ConnectionPool, seconds: float) -> None:
    """Ask a replica whether it is ready.

    Raises:
        ReplicaLostError: it accepts no connection, or says that it is not ready.
        AnswerLateError: it does not answer in time.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    connection = await pool.acquire(deadline)
    answer = await connection.exchange(_PROBE, (), deadline)
    pool.release(connection)
    if answer.status != 200:
        raise ReplicaLostError(f"{pool.address} is not ready: status {answer.status}")


def _worst(active: list[ReplicaServer], generation: Generation) -> list[ReplicaServer]:
    """Return replicas in the order in which they should end."""
    return sorted(
        active,
        key=lambda each: (
            each.generation == generation.number,
            each.state is not ReplicaState.STARTING,
            each.state is not ReplicaState.SUSPECT,
            each.open,
            -each.since,
        ),
    )
