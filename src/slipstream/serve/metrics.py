"""Numbers of a server in the form of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slipstream.serve.record import RequestRecord
from slipstream.serve.repository import Repository

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# From a tenth of a millisecond, of what is least, to ten seconds.
_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
)  # fmt: skip
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MODEL = ("model", "version")


class Metrics:
    """Numbers of a server.

    Args:
        repository: with the models, whose queues are looked at when the numbers are asked for.
    """

    def __init__(self, repository: Repository) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "slipstream_requests", "Requests that were answered.", (*_MODEL, "protocol", "outcome")
        )
        self._seconds = self._histogram(
            "slipstream_request_seconds", "From the first byte to the result.", _SECONDS
        )
        self._queued = self._histogram(
            "slipstream_queue_seconds", "That a request waited for its run.", _SECONDS
        )
        self._ran = self._histogram("slipstream_run_seconds", "Of the run.", _SECONDS)
        self._rows = self._histogram("slipstream_run_rows", "That shared a run.", _ROWS)
        self._found: dict[tuple[str, str], tuple[Histogram, ...]] = {}
        self._registry.register(_Queues(repository))

    def add(self, record: RequestRecord) -> None:
        """Counts a request.

        Args:
            record: of it.
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
        """Returns all of them."""
        return generate_latest(self._registry)

    def _of_model(self, labels: tuple[str, str]) -> tuple[Histogram, ...]:
        """Its histograms; to look each up takes longer than to count."""
        found = self._found.get(labels)
        if found is None:
            kinds = (self._seconds, self._queued, self._ran, self._rows)
            found = self._found[labels] = tuple(each.labels(*labels) for each in kinds)
        return found

    def _counter(self, name: str, what: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, what, labels, registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, what, _MODEL, buckets=buckets, registry=self._registry)


class _Queues(Collector):
    """Requests that wait and runs that are under way, now."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields both, by model and version."""
        waiting = GaugeMetricFamily("slipstream_waiting", "Requests that wait.", labels=_MODEL)
        running = GaugeMetricFamily("slipstream_running", "Runs under way.", labels=_MODEL)
        for spec in self._repository.specs:
            served = self._repository.get(spec.name, spec.version)
            if served is not None:
                waiting.add_metric([spec.name, spec.version], served.batcher.waiting)
                running.add_metric([spec.name, spec.version], served.batcher.running)
        yield waiting
        yield running
