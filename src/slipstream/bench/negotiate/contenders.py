"""Two methods by which ranks agree on one order of tensors: Slipstream's, and a coordinator.

The coordinator is rank 0. It works like Horovod's coordinator, but Slipstream sends its messages.
In each cycle every rank sends the names, types and shapes of its submitted tensors to rank 0. Rank
0 counts the received names, and broadcasts the names of the tensors that all ranks have submitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipstream import _core
from slipstream.bench.negotiate.job import COORDINATOR, OURS
from slipstream.comm.collectives import Group
from slipstream.comm.negotiator import Negotiator, NegotiatorConfig, Tensor
from slipstream.errors import InternalError

Bytes = npt.NDArray[np.uint8]

ELEMENTS = 256  # number of elements of a float32 tensor of 1 KB
LIMIT_SECONDS = 60.0  # time limit in seconds for one agreement


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds and messages that a method has needed on this rank so far.

    Args:
        exchanges: Number of rounds of negotiation.
        messages: Number of messages sent and received.
    """

    exchanges: int
    messages: int


class NegotiationContender(ABC):
    """A measured method by which ranks agree on one order of tensors.

    All ranks construct the same methods, in the same order.
    """

    name: str

    @abstractmethod
    def prepare(self, names: Sequence[str]) -> None:
        """Describe tensors for `negotiate` before the clock starts, without communication."""

    @abstractmethod
    def negotiate(self, names: Sequence[str]) -> list[str]:
        """Submit tensors, wait for all ranks, and return the names in the common order."""

    @abstractmethod
    def effort(self) -> Effort:
        """Return the rounds and messages that this rank has needed so far."""

    @abstractmethod
    def close(self) -> None:
        """Free this object's resources; all ranks must call this method."""


class Ours(NegotiationContender):
    """Slipstream's negotiation, which has no coordinator.

    Args:
        group: Group of all ranks.
        cycle_seconds: Shortest time in seconds between the starts of consecutive rounds of
            negotiation.
    """

    name = OURS

    def __init__(self, group: Group, cycle_seconds: float) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._negotiator = Negotiator(group, NegotiatorConfig(cycle_seconds=cycle_seconds))

    def prepare(self, names: Sequence[str]) -> None:
        """Describe tensors for `negotiate` before the clock starts, without communication."""
        for name in names:
            self._tensors[name] = Tensor(name, _core.DType.FLOAT32, (ELEMENTS,))

    def negotiate(self, names: Sequence[str]) -> list[str]:
        """Submit tensors, wait for all ranks, and return the names in the common order."""
        self._negotiator.submit_all([self._tensors[name] for name in names])
        ready: list[str] = []
        while len(ready) < len(names):
            outcome = self._negotiator.next(LIMIT_SECONDS)
            if outcome is None:
                raise InternalError(
                    f"only {len(ready)} of {len(names)} tensors are ready after {LIMIT_SECONDS:g} s"
                )
            ready += [names[token] for token in outcome.tokens]
        return ready

    def effort(self) -> Effort:
        """Return the rounds and messages that this rank has needed so far."""
        stats = self._negotiator.stats()
        return Effort(stats.rounds, stats.messages)

    def close(self) -> None:
        """Free this object's resources; all ranks must call this method."""
        self._negotiator.close()


class Coordinator(NegotiationContender):
    """Negotiation by rank 0, which gathers names from all ranks and broadcasts the ready names.

    Args:
        group: Group of all ranks.
    """

    name = COORDINATOR

    def __init__(self, group: Group) -> None:
        self._group = group
        self._counts: Counter[str] = Counter()
        self._effort = Effort(0, 0)
        self._requests: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def prepare(self, names: Sequence[str]) -> None:
        """Describe tensors for `negotiate` before the clock starts, without communication."""
        for name in names:
            request = f"{name} allreduce sum float32[{ELEMENTS}]"
            self._requests[name] = request
            self._names[request] = name

    def negotiate(self, names: Sequence[str]) -> list[str]:
        """Submit tensors, wait for all ranks, and return the names in the common order."""
        ready: list[str] = []
        waiting = [self._requests[name] for name in names]
        while len(ready) < len(names):
            ready += [self._names[request] for request in self._cycle(waiting)]
            waiting = []
        return ready

    def _cycle(self, submitted: Sequence[str]) -> list[str]:
        request = _as_bytes(submitted)
        size = np.array([request.size], np.uint64)
        sizes = self._group.gather(size)
        self._effort = Effort(
            self._effort.exchanges + 1, self._effort.messages + self._messages_of_a_cycle()
        )
        if self._group.rank != 0:
            if request.size:
                self._group.send(request, 0)
            return self._receive_ready()
        for rank in range(self._group.size):
            if rank:
                request = np.empty(int(sizes[rank, 0]), np.uint8)
                if request.size:
                    self._group.recv(request, rank)
            self._counts.update(_as_names(request))
        return self._broadcast_ready()

    def _broadcast_ready(self) -> list[str]:
        ready = [name for name, count in self._counts.items() if count == self._group.size]
        for name in ready:
            del self._counts[name]
        response = _as_bytes(ready)
        self._group.broadcast(np.array([response.size], np.uint64))
        if response.size:
            self._group.broadcast(response)
        return ready

    def _receive_ready(self) -> list[str]:
        size = np.zeros(1, np.uint64)
        self._group.broadcast(size)
        response = np.empty(int(size[0]), np.uint8)
        if response.size:
            self._group.broadcast(response)
        return _as_names(response)

    def _messages_of_a_cycle(self) -> int:
        """Return this rank's number of messages in a cycle of two gathers and two broadcasts."""
        others = self._group.size - 1
        if self._group.rank != 0:
            return 4
        per_broadcast = others if self._group.size <= 4 else others.bit_length()
        return 2 * others + 2 * per_broadcast

    def effort(self) -> Effort:
        """Return the rounds and messages that this rank has needed so far."""
        return self._effort

    def close(self) -> None:
        """Do nothing, because the coordinator has no resources."""


def _as_bytes(names: Sequence[str]) -> Bytes:
    return np.array(bytearray("\n".join(names).encode()), np.uint8)


def _as_names(text: Bytes) -> list[str]:
    return text.tobytes().decode().split("\n") if text.size else []
