"""Numbers of a server in the form of Prometheus."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

pytest.importorskip("starlette")

from prometheus_client.parser import text_string_to_metric_families

from slipstream.serve.batcher import InferenceResult
from slipstream.serve.metrics import CONTENT_TYPE, Metrics
from slipstream.serve.record import RequestRecord

MODEL = {"model": "m", "version": "1"}
# From a tenth of a millisecond to ten seconds.
SECONDS = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def families(metrics):
    return {each.name: each for each in text_string_to_metric_families(metrics.text().decode())}


def value(metrics, name, **labels):
    """Return the value of the sample with exactly these labels."""
    samples = (sample for family in families(metrics).values() for sample in family.samples)
    (found,) = (each.value for each in samples if (each.name, each.labels) == (name, labels))
    return found


@pytest.fixture
def metrics(repository):
    return Metrics(repository("m=a.slip", "m=b.slip"))


def test_requests_are_counted_by_model_protocol_and_outcome(metrics):
    for outcome in ("ok", "ok", "busy"):
        metrics.add(RequestRecord(protocol="grpc", model="m", version="1", outcome=outcome))
    name, labels = "slipstream_requests_total", {**MODEL, "protocol": "grpc"}
    assert value(metrics, name, outcome="ok", **labels) == 2
    assert value(metrics, name, outcome="busy", **labels) == 1
    assert not families(metrics)["slipstream_request_seconds"].samples


def test_times_and_rows_of_runs_are_each_in_their_histogram(metrics):
    done = InferenceResult({}, queue_seconds=0.25, run_seconds=0.5, batch_rows=3)
    for _ in range(2):
        metrics.add(RequestRecord(protocol="rest", **MODEL, seconds=1.0, done=done))
    for name, each in (("request_seconds", 1), ("queue_seconds", 0.25), ("run_seconds", 0.5),
                       ("run_rows", 3)):  # fmt: skip
        assert value(metrics, f"slipstream_{name}_sum", **MODEL) == 2 * each
        assert value(metrics, f"slipstream_{name}_count", **MODEL) == 2


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("request_seconds", SECONDS), ("queue_seconds", SECONDS), ("run_seconds", SECONDS),
     ("run_rows", ROWS)],
)  # fmt: skip
def test_classes_of_histograms_are_those_that_dashboards_know(metrics, name, bounds):
    metrics.add(RequestRecord(protocol="rest", **MODEL, done=InferenceResult({}, 0.0, 0.0, 1)))
    samples = families(metrics)[f"slipstream_{name}"].samples
    found = [float(each.labels["le"]) for each in samples if each.name.endswith("_bucket")]
    assert found == [*bounds, float("inf")]


def test_queues_are_those_of_versions_that_are_ready(repository, signature):
    async def main():
        models = repository("m=a.slip", "m=b.slip")
        metrics = Metrics(models)
        served = await models.load("m", "1")
        x = served.signature.check({"x": np.zeros((2, 2), np.float32)})
        until = asyncio.get_running_loop().time() + 60
        asked = [asyncio.ensure_future(served.batcher.submit(x, until)) for _ in range(5)]
        await asyncio.sleep(0)
        # One run is under way and two are next; two requests wait.
        assert value(metrics, "slipstream_running", **MODEL) == 3
        assert value(metrics, "slipstream_waiting", **MODEL) == 2
        assert len(families(metrics)["slipstream_running"].samples) == 1
        await asyncio.gather(*asked)
        assert value(metrics, "slipstream_running", **MODEL) == 0
        assert value(metrics, "slipstream_waiting", **MODEL) == 0

    asyncio.run(main())


def test_the_text_says_what_it_is(metrics):
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# HELP slipstream_waiting Number of waiting requests." in metrics.text()


def test_replicas_are_counted_by_their_devices(repository):
    async def main():
        models = repository("m=a.slip")
        served = await models.load("m", "1")
        served.devices = ("cuda:0 (H100)", "cuda:1 (H100)", "cuda:1 (H100)")
        metrics = Metrics(models)
        for device, count in (("cuda:0 (H100)", 1), ("cuda:1 (H100)", 2)):
            assert value(metrics, "slipstream_replicas", **MODEL, device=device) == count

    asyncio.run(main())
