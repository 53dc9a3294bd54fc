"""The metrics of a server in the format of Prometheus."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slipstream.serve.record import RequestRecord
from slipstream.serve.repository import Repository

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Bounds of the time histograms in seconds, from the shortest requests (0.1 ms) to the default
# timeout (10 s).
SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
)  # fmt: skip
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MODEL = ("model", "version")


class Metrics:
    """The metrics of a server.

    Args:
        repository: Repository of the models; the lengths of their queues are read whenever metrics
            are collected.
    """

    def __init__(self, repository: Repository) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "slipstream_requests", "Number of answered requests.", (*_MODEL, "protocol", "outcome")
        )
        self._seconds = self._histogram(
            "slipstream_request_seconds",
            "Time from the first byte of a request to its result.",
            SECONDS,
        )
        self._queued = self._histogram(
            "slipstream_queue_seconds",
            "Time that a request waited before its batch started.",
            SECONDS,
        )
        self._ran = self._histogram(
            "slipstream_run_seconds", "Duration of the runs of a batch.", SECONDS
        )
        self._rows = self._histogram(
            "slipstream_run_rows", "Rows of all requests in a batch.", _ROWS
        )
        self._found: dict[tuple[str, str], tuple[Histogram, ...]] = {}
        self._registry.register(_Queues(repository))

    def add(self, record: RequestRecord) -> None:
        """Count an answered request.

        Args:
            record: Record of the request.
        """
        labels = (record.model, record.version)
        self._requests.labels(*labels, record.protocol, record.outcome).inc()
        if record.done is None:
            return
        seconds, queued, ran, rows = self._of_model(labels)
        seconds.observe(record.seconds)
        queued.observe(record.done.queue_seconds)
        ran.observe(record.done.run_seconds)
        rows.observe(record.done.batch_rows)

    def text(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self._registry)

    def _of_model(self, labels: tuple[str, str]) -> tuple[Histogram, ...]:
        """Return a model's histograms from a cache, because finding them by labels is slower."""
        found = self._found.get(labels)
        if found is None:
            kinds = (self._seconds, self._queued, self._ran, self._rows)
            found = self._found[labels] = tuple(each.labels(*labels) for each in kinds)
        return found

    def _counter(self, name: str, description: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, description, labels, registry=self._registry)

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, description, _MODEL, buckets=buckets, registry=self._registry)


class _Queues(Collector):
    """The current numbers of waiting requests, executing runs and replicas."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of each model and version."""
        waiting = GaugeMetricFamily(
            "slipstream_waiting", "Number of waiting requests.", labels=_MODEL
        )
        running = GaugeMetricFamily(
            "slipstream_running", "Number of executing runs.", labels=_MODEL
        )
        replicas = GaugeMetricFamily(
            "slipstream_replicas",
            "Number of replicas that execute the model, by device.",
            labels=(*_MODEL, "device"),
        )
        for spec in self._repository.specs:
            served = self._repository.get(spec.name, spec.version)
            if served is not None:
                waiting.add_metric([spec.name, spec.version], served.batcher.waiting)
                running.add_metric([spec.name, spec.version], served.batcher.running)
                for device, count in collections.Counter(served.devices).items():
                    replicas.add_metric([spec.name, spec.version, device], count)
        yield waiting
        yield running
        yield replicas
