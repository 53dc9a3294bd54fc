"""Results of `slipstream bench serve`, and whether they meet the targets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.bench.serve.clients import ServeTurn

OURS = "slipstream"

CROWD = 8  # clients of the bars beside a peer
RATE = 1.1  # least of our throughput over the peer's
TAIL = 1.0  # least of the peer's p99 over ours
ADDED_SECONDS = 0.5e-3  # most that serving adds to a call, p50
KEPT = 0.99  # least share of accepted requests that are answered by their deadline
GROWTH = 0.05  # most by which a server under overload grows

OK, BUSY, LATE = 200, 429, 504


@dataclass(frozen=True, slots=True)
class Reached:
    """Rate and latencies of one turn of a closed loop or of calls.

    Args:
        rate: Answers per second.
        p50: Median latency, in seconds.
        p99: 99th percentile of the latencies, in seconds.
    """

    rate: float
    p50: float
    p99: float

    @classmethod
    def of(cls, turn: ServeTurn) -> Reached:
        """Return the rate and latencies of a turn with at least one answer."""
        latencies = turn.latencies
        return cls(len(latencies) / turn.seconds, quantile(latencies, 50), quantile(latencies, 99))


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A contender with a number of clients.

    Args:
        contender: its name.
        clients: Clients of the closed loop; 0 if the model was called in the process, without a
            server.
        turns: one of each round.
    """

    contender: str
    clients: int
    turns: tuple[Reached, ...]

    @property
    def middle(self) -> Reached:
        """The medians over rounds."""
        return Reached(
            statistics.median(each.rate for each in self.turns),
            statistics.median(each.p50 for each in self.turns),
            statistics.median(each.p99 for each in self.turns),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Overload:
    """A contender that is asked for more than it can do.

    Args:
        contender: its name.
        rate: requests per second that were meant to be sent.
        deadline: Deadline of each request, in seconds.
        turn: Counts of the answers.
    """

    contender: str
    rate: float
    deadline: float
    turn: ServeTurn

    @property
    def num_requests(self) -> int:
        """All that were sent, or meant to be."""
        return sum(self.turn.statuses.values())

    @property
    def num_accepted(self) -> int:
        """Requests with a result, and requests whose deadline passed later."""
        return self.turn.statuses.get(OK, 0) + self.turn.statuses.get(LATE, 0)

    @property
    def num_refused(self) -> int:
        """Requests that the server refused at once because there was no time for them."""
        return self.turn.statuses.get(BUSY, 0)

    @property
    def num_failed(self) -> int:
        """Requests that were neither accepted nor refused: with other answers or without any."""
        return self.num_requests - self.num_accepted - self.num_refused

    @property
    def num_kept(self) -> int:
        """Requests with a result by their deadline, counted from the planned time of sending."""
        return sum(each <= self.deadline for each in self.turn.latencies)

    @property
    def kept(self) -> float:
        """Share of accepted requests with a result by their deadline."""
        return self.num_kept / self.num_accepted if self.num_accepted else 0.0

    @property
    def useful_rate(self) -> float:
        """Results per second by their deadline."""
        return self.num_kept / self.turn.seconds

    @property
    def growth(self) -> float:
        """By which share the last quarter's memory is more than the second's: the first is when
        buffers are made. 0 for less than four samples."""
        memory = self.turn.memory
        quarter = len(memory) // 4
        if not quarter:
            return 0.0
        before = statistics.median(memory[quarter : 2 * quarter])
        return statistics.median(memory[-quarter:]) / before - 1


@dataclass(frozen=True, slots=True)
class ServeBar:
    """A target and the measured value.

    Args:
        name: Name of the target.
        measured: Measured value, formatted.
        wanted: Required value, formatted.
        holds: whether it does.
    """

    name: str
    measured: str
    wanted: str
    holds: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeReport:
    """Results of a run.

    Args:
        package: name of its file.
        engine: Engine and precision of ours.
        threads: Threads of a run by every contender.
        points: Results of closed loops and of calls in the process.
        overloads: Results of open loops.
        snr_db: Signal-to-noise ratio of each contender's outputs against the package's, in dB.
        notes: Notes on the comparison, a sentence each.
    """

    package: str
    engine: str
    threads: int
    points: tuple[Point, ...]
    overloads: tuple[Overload, ...]
    snr_db: dict[str, float]
    notes: tuple[str, ...]

    @property
    def contenders(self) -> tuple[str, ...]:
        """Names of the contenders that served, ours first."""
        return tuple(self.snr_db)

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of peers."""
        return tuple(each for each in self.contenders if each != OURS)

    @property
    def crowd(self) -> int:
        """Number of clients in the targets: 8, or the largest number if 8 was not measured."""
        counts = {each.clients for each in self.points}
        return CROWD if CROWD in counts else max(counts)

    def point(self, contender: str, clients: int) -> Point | None:
        """Return a contender's point; None if it was not measured."""
        return next(
            (each for each in self.points
             if each.contender == contender and each.clients == clients), None,
        )  # fmt: skip

    @property
    def added(self) -> float | None:
        """Seconds that serving adds to a call: the median over rounds of what the p50 of one client
        is more than that of calls in the same round; None where one of them was not measured."""
        served, called = self.point(OURS, 1), self.point(OURS, 0)
        if served is None or called is None:
            return None
        pairs = zip(served.turns, called.turns, strict=True)
        return statistics.median(over.p50 - bare.p50 for over, bare in pairs)

    @property
    def bars(self) -> list[ServeBar]:
        """Targets whose values were measured."""
        ours = next((each for each in self.overloads if each.contender == OURS), None)
        return [*self._beside_peer(), *self._added(), *(_overload(ours) if ours else ())]

    def _beside_peer(self) -> list[ServeBar]:
        clients = self.crowd
        ours = self.point(OURS, clients)
        found = [self.point(each, clients) for each in self.peers]
        peers = [each for each in found if each is not None]
        if ours is None or not peers:
            return []
        # The best peer of each. Of the same round, so that what disturbs a round disturbs both.
        rates = min(
            statistics.median(one.rate / other.rate for one, other in _rounds(ours, peer))
            for peer in peers
        )
        tails = min(
            statistics.median(other.p99 / one.p99 for one, other in _rounds(ours, peer))
            for peer in peers
        )
        of = f"best peer's, {clients} clients"
        return [
            ServeBar(f"throughput / {of}", f"{rates:.2f}", f"{RATE:.2f} or more", rates >= RATE),
            ServeBar(f"p99, ours into {of}", f"{tails:.2f}", f"{TAIL:.2f} or more", tails >= TAIL),
        ]

    def _added(self) -> list[ServeBar]:
        added = self.added
        if added is None:
            return []
        # Less than nothing is no result: something else ran meanwhile.
        holds = 0 <= added <= ADDED_SECONDS
        wanted = f"0 to {ADDED_SECONDS * 1e3:g} ms"
        return [ServeBar("added to a call, p50", f"{added * 1e3:.3f} ms", wanted, holds)]


def quantile(values: Sequence[float], percent: int) -> float:
    """Return the value that so many percent are not above.

    Args:
        values: Values, at least one.
        percent: 1 to 99.
    """
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _rounds(ours: Point, other: Point) -> list[tuple[Reached, Reached]]:
    return list(zip(ours.turns, other.turns, strict=True))


def _overload(found: Overload) -> list[ServeBar]:
    failed, growth = found.num_failed, found.growth
    return [
        ServeBar(
            f"accepted, done in {found.deadline * 1e3:g} ms", f"{found.kept:.2%}",
            f"{KEPT:.0%} or more", found.kept >= KEPT,
        ),
        ServeBar("neither accepted nor 429", f"{failed}", "0", failed == 0),
        ServeBar(
            "the server's memory grows by", f"{growth:.1%}", f"{GROWTH:.0%} or less",
            growth <= GROWTH,
        ),
    ]  # fmt: skip
