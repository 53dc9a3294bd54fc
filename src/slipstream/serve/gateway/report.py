"""What the gateway tells about itself: metrics for Prometheus, a status in JSON, an access log."""

from __future__ import annotations

import collections
import datetime
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import orjson
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slipstream.serve.gateway.dispatcher import Dispatcher
from slipstream.serve.gateway.fleet import Fleet
from slipstream.serve.gateway.replica_server import ReplicaState
from slipstream.serve.gateway.scaling import LATENCY_SECONDS, Autoscaler, ScalingDecision
from slipstream.serve.metrics import SECONDS

_NUM_EVENTS = 200  # events that the status shows
_MOST_LATENCIES = 20_000  # of the newest requests, whose percentiles are known


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """A request with its result, for the report.

    Args:
        protocol: Protocol, "rest" or "grpc".
        path: Path or method.
        status: HTTP status, or name of the status of gRPC.
        num_bytes: Size of the request's body in bytes.
        seconds: Time in seconds from the request's arrival to its answer.
        replica: Name of the replica that answered; "" if none did.
    """

    protocol: str
    path: str
    status: str
    num_bytes: int
    seconds: float
    replica: str


class GatewayReport:
    """Counters and events of a gateway.

    Args:
        dispatcher: Dispatcher, whose queue is shown.
        access_log: File that receives a line of JSON for each request; None for no log.
    """

    def __init__(self, dispatcher: Dispatcher, access_log: TextIO | None) -> None:
        self._dispatcher, self._access_log = dispatcher, access_log
        self._latencies: collections.deque[tuple[float, float]] = collections.deque(
            maxlen=_MOST_LATENCIES
        )
        self._events: collections.deque[dict[str, object]] = collections.deque(maxlen=_NUM_EVENTS)
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "slipstream_gateway_requests",
            "Number of answered requests, by protocol and status.",
            ("protocol", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "slipstream_gateway_request_seconds",
            "Time from a request's header to its answer.",
            buckets=SECONDS,
            registry=registry,
        )
        self._retries = Counter(
            "slipstream_gateway_retries",
            "Number of second attempts, by reason.",
            ("reason",),
            registry=registry,
        )
        registry.register(_Gauges(dispatcher))

    def retried(self, reason: str) -> None:
        """Count an attempt that follows another one."""
        self._retries.labels(reason).inc()

    def answered(self, request: AnsweredRequest) -> None:
        """Count an answered request, and log it.

        Args:
            request: Request with its result.
        """
        self._requests.labels(request.protocol, request.status).inc()
        if request.replica:
            self._seconds.observe(request.seconds)
            self._latencies.append((time.monotonic(), request.seconds))
        if self._access_log is not None:
            content: dict[str, object] = {
                "time": _now(), "protocol": request.protocol, "path": request.path,
                "status": request.status, "bytes": request.num_bytes,
                "ms": round(request.seconds * 1e3, 3), "replica": request.replica,
            }  # fmt: skip
            self._access_log.write(orjson.dumps(content).decode() + "\n")
            self._access_log.flush()

    def event(self, words: str) -> None:
        """Keep an event for the status."""
        self._events.append({"time": _now(), "event": words})

    def decided(self, decision: ScalingDecision) -> None:
        """Keep a decision for the status."""
        self._events.append(
            {
                "time": _now(),
                "event": f"{decision.before} -> {decision.target} replicas",
                "reason": decision.reason,
            }
        )

    def latency(self, share: float) -> float | None:
        """Return the time in seconds within which a share of the newest requests was answered.

        Args:
            share: Share of the requests, 0 to 1.

        Returns:
            Time in seconds; None if there were no requests lately.
        """
        oldest = time.monotonic() - LATENCY_SECONDS
        while self._latencies and self._latencies[0][0] < oldest:
            self._latencies.popleft()
        found = sorted(seconds for _, seconds in self._latencies)
        return found[min(math.ceil(share * len(found)), len(found)) - 1] if found else None

    def metrics(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self._registry)

    def status(self, fleet: Fleet, scaler: Autoscaler) -> dict[str, object]:
        """Return the state of the gateway, for JSON.

        Args:
            fleet: Replicas.
            scaler: Autoscaler, whose rules and target are shown.
        """
        now = time.monotonic()
        shares = {name: self.latency(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
        return {
            "min": scaler.rules.min,
            "max": scaler.rules.max,
            "target": scaler.target,
            "generation": fleet.generation.number,
            "open": self._dispatcher.open,
            "waiting": self._dispatcher.waiting,
            "latency_ms": {
                name: None if seconds is None else round(seconds * 1e3, 3)
                for name, seconds in shares.items()
            },
            "problem": fleet.problem,
            "replicas": [
                {
                    "name": each.name, "host": each.host, "state": each.state.value,
                    "generation": each.generation, "open": each.open, "answered": each.answered,
                    "lost": each.lost, "seconds": round(now - each.since, 1),
                    "start_seconds": round(each.start_seconds, 3),
                }
                for each in fleet.replicas
            ],
            "events": list(self._events),
        }  # fmt: skip


class _Gauges(Collector):
    """The current numbers of requests and replicas."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        replicas = GaugeMetricFamily(
            "slipstream_gateway_replicas", "Number of replicas, by state.", labels=("state",)
        )
        counts = collections.Counter(each.state for each in self._dispatcher.replicas)
        for state in ReplicaState:
            replicas.add_metric([state.value], counts[state])
        yield replicas
        for name, description, value in (
            ("open", "Number of requests that are not answered.", self._dispatcher.open),
            ("waiting", "Number of requests that wait for a replica.", self._dispatcher.waiting),
        ):
            yield GaugeMetricFamily(f"slipstream_gateway_{name}", description, value)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
