"""Results of `slipstream bench serve`, and its performance targets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.bench.serve.clients import ServeTurn

OURS = "slipstream"

# Performance targets.
CROWD = 8  # number of clients in the comparison with the peer
RATE = 1.1  # smallest ratio of our throughput to the peer's
TAIL = 1.0  # smallest ratio of the peer's 99th percentile of latency to ours
ADDED_SECONDS = 0.5e-3  # largest overhead of serving in seconds, for the median latency
KEPT = 0.99  # smallest share of accepted requests that are answered by their deadline
GROWTH = 0.05  # largest relative growth of a server's memory under overload

OK, BUSY, LATE = 200, 429, 504


@dataclass(frozen=True, slots=True)
class TurnResult:
    """Rate and latencies in one turn of a closed loop, or of runs without a server.

    Args:
        rate: Answers per second.
        p50: Median latency in seconds.
        p99: 99th percentile of the latency in seconds.
    """

    rate: float
    p50: float
    p99: float

    @classmethod
    def of(cls, turn: ServeTurn) -> TurnResult:
        """Return the rate and the latencies of a turn, which must have at least one answer."""
        latencies = turn.latencies
        return cls(len(latencies) / turn.seconds, quantile(latencies, 50), quantile(latencies, 99))


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Result of one server with one number of clients.

    Args:
        contender: Name of the server.
        clients: Number of clients of the closed loop; 0 if the model was run without a server.
        turns: Result of one turn per round.
    """

    contender: str
    clients: int
    turns: tuple[TurnResult, ...]

    @property
    def middle(self) -> TurnResult:
        """Rate, p50 and p99, each the median over the rounds."""
        return TurnResult(
            statistics.median(turn.rate for turn in self.turns),
            statistics.median(turn.p50 for turn in self.turns),
            statistics.median(turn.p99 for turn in self.turns),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Overload:
    """Result of a server that receives more requests per second than it can answer.

    Args:
        contender: Name of the server.
        rate: Planned number of requests per second.
        deadline: Deadline of each request in seconds.
        turn: Result of the open loop.
    """

    contender: str
    rate: float
    deadline: float
    turn: ServeTurn

    @property
    def num_requests(self) -> int:
        """Number of requests, including those that could not be sent."""
        return sum(self.turn.statuses.values())

    @property
    def num_accepted(self) -> int:
        """Number of accepted requests, including those whose deadline passed in the queue."""
        return self.turn.statuses.get(OK, 0) + self.turn.statuses.get(LATE, 0)

    @property
    def num_refused(self) -> int:
        """Number of requests that the server refused immediately for lack of time."""
        return self.turn.statuses.get(BUSY, 0)

    @property
    def num_failed(self) -> int:
        """Number of requests that were neither accepted nor refused, such as unanswered ones."""
        return self.num_requests - self.num_accepted - self.num_refused

    @property
    def num_kept(self) -> int:
        """Number of results within the deadline, which starts at the planned sending time."""
        return sum(latency <= self.deadline for latency in self.turn.latencies)

    @property
    def kept(self) -> float:
        """Share of accepted requests with a result within the deadline, 0 to 1."""
        return self.num_kept / self.num_accepted if self.num_accepted else 0.0

    @property
    def useful_rate(self) -> float:
        """Number of results within the deadline, per second."""
        return self.num_kept / self.turn.seconds

    @property
    def growth(self) -> float:
        """Relative growth of the server's memory from the second to the last quarter of the loop.

        The first quarter is left out, because the server allocates its buffers in it. The growth is
        0 if there are fewer than four samples.
        """
        memory = self.turn.memory
        quarter = len(memory) // 4
        if not quarter:
            return 0.0
        before = statistics.median(memory[quarter : 2 * quarter])
        return statistics.median(memory[-quarter:]) / before - 1


@dataclass(frozen=True, slots=True)
class ServeBar:
    """A performance target and the measured value.

    Args:
        name: Readable name of the target.
        measured: Measured value as text.
        target: Required value as text.
        holds: Whether the measured value meets the target.
    """

    name: str
    measured: str
    target: str
    holds: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeReport:
    """Results of a run of the serving benchmark.

    Args:
        package: Name of the package's file.
        engine: Engine and precision of our server, as text.
        threads: Number of threads with which every server runs the model.
        points: Results of closed loops and of runs without a server.
        overloads: Results of open loops.
        snr_db: Signal-to-noise ratio of each server's outputs relative to the package's, in dB.
        notes: Sentences that warn about limits of the comparison.
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
        """Names of all measured servers; ours is the first."""
        return tuple(self.snr_db)

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the servers that are compared with ours."""
        return tuple(name for name in self.contenders if name != OURS)

    @property
    def crowd(self) -> int:
        """Number of clients when servers are compared: 8, or the largest if 8 was not measured."""
        counts = {point.clients for point in self.points}
        return CROWD if CROWD in counts else max(counts)

    def point(self, contender: str, clients: int) -> Point | None:
        """Return a server's result for a given number of clients, or None if there is none."""
        points = (
            point
            for point in self.points
            if point.contender == contender and point.clients == clients
        )
        return next(points, None)

    @property
    def added(self) -> float | None:
        """Overhead of serving in seconds; None if it was not measured.

        The overhead of a round is the p50 with one client minus the p50 of runs without a server.
        The median over the rounds is returned.
        """
        served, called = self.point(OURS, 1), self.point(OURS, 0)
        if served is None or called is None:
            return None
        pairs = zip(served.turns, called.turns, strict=True)
        return statistics.median(one.p50 - bare.p50 for one, bare in pairs)

    @property
    def bars(self) -> list[ServeBar]:
        """Performance targets whose values were measured."""
        ours = next((result for result in self.overloads if result.contender == OURS), None)
        return [*self._beside_peer(), *self._added(), *(_overload(ours) if ours else ())]

    def _beside_peer(self) -> list[ServeBar]:
        clients = self.crowd
        ours = self.point(OURS, clients)
        points = [self.point(name, clients) for name in self.peers]
        peers = [point for point in points if point is not None]
        if ours is None or not peers:
            return []
        # The faster peer counts for each target. Ratios are computed within a round, because a
        # disturbance affects both servers in a round.
        rates = min(
            statistics.median(one.rate / other.rate for one, other in _rounds(ours, peer))
            for peer in peers
        )
        tails = min(
            statistics.median(other.p99 / one.p99 for one, other in _rounds(ours, peer))
            for peer in peers
        )
        clients_text = f"{clients} clients"
        return [
            ServeBar(
                f"throughput / best peer's, {clients_text}",
                f"{rates:.2f}",
                f"at least {RATE:.2f}",
                rates >= RATE,
            ),
            ServeBar(
                f"best peer's p99 / ours, {clients_text}",
                f"{tails:.2f}",
                f"at least {TAIL:.2f}",
                tails >= TAIL,
            ),
        ]

    def _added(self) -> list[ServeBar]:
        added = self.added
        if added is None:
            return []
        # A negative overhead is invalid: another program must have run at the same time.
        holds = 0 <= added <= ADDED_SECONDS
        target = f"0 to {ADDED_SECONDS * 1e3:g} ms"
        return [ServeBar("overhead of serving, p50", f"{added * 1e3:.3f} ms", target, holds)]


def quantile(values: Sequence[float], percent: int) -> float:
    """Return a percentile of the values.

    Args:
        values: Values, at least one.
        percent: Percentile, 1 to 99.
    """
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _rounds(ours: Point, other: Point) -> list[tuple[TurnResult, TurnResult]]:
    return list(zip(ours.turns, other.turns, strict=True))


def _overload(ours: Overload) -> list[ServeBar]:
    failed, growth = ours.num_failed, ours.growth
    return [
        ServeBar(
            f"accepted requests answered in {ours.deadline * 1e3:g} ms", f"{ours.kept:.2%}",
            f"at least {KEPT:.0%}", ours.kept >= KEPT,
        ),
        ServeBar("requests neither accepted nor 429", f"{failed}", "0", failed == 0),
        ServeBar(
            "growth of the server's memory", f"{growth:.1%}", f"at most {GROWTH:.0%}",
            growth <= GROWTH,
        ),
    ]  # fmt: skip
