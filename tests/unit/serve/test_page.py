"""The page of a server: what it counts, what it tells, what its files are."""

from __future__ import annotations

import asyncio
import random
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")

import orjson
from starlette.applications import Starlette

from slipstream.infer.engines.protocol import Recipe
from slipstream.infer.machine import this_machine
from slipstream.infer.package.package import Accuracy, Manifest, Reading
from slipstream.serve.page import OPEN_PATHS, SECONDS, History, page_routes
from slipstream.serve.record import OK, RequestRecord
from slipstream.serve.repository import ModelSpec


class Clock:
    """Seconds as a test sets them."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def history(clock):
    return History(clock)


def record(seconds=0.01, outcome=OK, model="a", version="1"):
    return RequestRecord(
        protocol="rest", model=model, version=version, seconds=seconds, outcome=outcome
    )


def test_a_second_has_its_requests_and_those_that_were_refused(clock, history):
    for outcome in (OK, OK, "busy", "invalid", "gone"):
        history.add(record(outcome=outcome))
    clock.now += 2
    history.add(record())
    clock.now += 0.9  # its second is not over
    found = history.series()
    assert found["requests"][-3:] == [0, 5, 0]
    assert found["refused"][-3:] == [0, 2, 0]
    assert found["p50_ms"][-2] == pytest.approx(10, rel=0.026)
    assert found["p99_ms"][-1] is None
    assert {len(each) for each in found.values()} == {SECONDS}


@pytest.mark.parametrize("scale", [3e-5, 1e-3, 0.2, 5.0])
def test_quantiles_are_right_to_a_few_percent(clock, history, scale):
    draw = random.Random(7)
    times = sorted(min(scale * draw.lognormvariate(0, 0.5), 59.0) for _ in range(2000))
    for each in times:
        history.add(record(each))
    found = history.load("a", "1")
    assert found["p50_ms"] == pytest.approx(1e3 * max(times[999], 1e-5), rel=0.026)
    assert found["p99_ms"] == pytest.approx(1e3 * times[1979], rel=0.026)


def test_times_beyond_what_is_counted_are_at_the_ends(history):
    history.add(record(0.0))
    history.add(record(4000.0, version="2"))
    assert history.load("a", "1")["p50_ms"] == pytest.approx(0.01, rel=0.026)
    assert history.load("a", "2")["p50_ms"] == pytest.approx(60e3, rel=0.051)


def test_what_is_older_than_five_minutes_is_forgotten(clock, history):
    history.add(record(0.5))
    for _ in range(SECONDS + 5):
        clock.now += 1
        history.add(record(0.01))
    assert history.load("a", "1")["p99_ms"] == pytest.approx(10, rel=0.026)
    assert len(history._seconds) == SECONDS + 1
    assert history.load("a", "1")["requests"] == SECONDS + 1
    clock.now += SECONDS + 1
    assert history.load("a", "1")["requests"] == sum(history.series()["requests"]) == 0


def test_memory_is_of_seconds_and_not_of_requests(clock, history):
    draw = random.Random(7)
    for _ in range(30_000):
        history.add(record(draw.lognormvariate(-5, 3)))
    (second,) = history._seconds
    assert len(second.parts["a", "1"].times) < 330


def test_versions_are_told_apart(history):
    history.add(record(0.001))
    history.add(record(0.1, version="2"))
    history.add(record(outcome="unknown", model="", version=""))
    assert history.load("a", "1")["requests"] == history.load("a", "2")["requests"] == 1
    assert history.load("a", "2")["p50_ms"] == pytest.approx(100, rel=0.026)
    assert history.load("b", "1") == {"requests": 0, "refused": 0, "p50_ms": None, "p99_ms": None}


# ---- over HTTP ---------------------------------------------------------------------------------


class Models:
    """One version that is ready, and one that is not."""

    def __init__(self, signature):
        self.specs = (ModelSpec("a", "1", Path("a.slip")), ModelSpec("a", "2", Path("b.slip"), 0.1))
        made = signature({"x": (4, 2)}, {"y": (4,)})
        manifest = Manifest(
            graph="model.onnx", inputs=made.inputs, outputs=made.outputs, threads=1,
            recipe=Recipe(engine="openvino", precision="int8"), machine=this_machine(),
            accuracy=Accuracy(snr_db=40.0, top1_loss=0.5, samples=9, labelled=9, data="9 of mine"),
        )  # fmt: skip
        self.served = SimpleNamespace(signature=made, manifest=manifest, devices=("cpu",))

    def get(self, name, version):
        return self.served if version == "1" else None


def get(models, history, path):
    """Answer one request with an application that has only these routes."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"",
        "http_version": "1.1", "scheme": "http", "root_path": "",
    }  # fmt: skip
    asyncio.run(Starlette(routes=page_routes(models, history))(scope, receive, send))
    headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:])


def test_the_state_has_models_their_accuracy_and_their_load(signature, history):
    history.add(record(0.002))
    status, headers, body = get(Models(signature), history, "/page/state")
    assert (status, headers["cache-control"]) == (200, "no-store")
    ready, loading = orjson.loads(body)["models"]
    assert ready["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert ready["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1]}]
    assert (ready["images"], ready["engine"], ready["precision"]) == (None, "openvino", "int8")
    assert ready["accuracy"]["top1_loss"] == 0.5
    assert ready["load"]["p50_ms"] == pytest.approx(2, rel=0.026)
    assert loading == {"name": "a", "version": "2", "share": 0.1, "ready": False}


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_files_say_what_they_are_and_load_nothing_from_elsewhere(signature, history, path):
    status, headers, body = get(Models(signature), history, path)
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    kinds = {"/": "text/html", "s": "text/css", "j": "text/javascript", "g": "image/svg+xml"}
    ending = "/" if path == "/" else path[-1] if path[-2:] != "js" else "j"
    assert headers["content-type"].startswith(kinds[ending])
    text = body.replace(b"http://www.w3.org/2000/svg", b"")  # a name, not an address
    assert b"http:" not in text
    assert b"https:" not in text
    assert b"//fonts" not in text


def test_every_file_of_the_page_is_served():
    folder = resources.files("slipstream.serve") / "page"
    assert len(list(folder.iterdir())) == len(OPEN_PATHS)


@pytest.mark.parametrize("path", ["/", "/page/page.js", "/page/state"])
def test_the_page_asks_for_no_more_than_it_needs(signature, history, path):
    _, headers, _ = get(Models(signature), history, path)
    assert headers["content-security-policy"] == (
        "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    )
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == ("no-store" if path.endswith("state") else "no-cache")


def test_five_minutes_are_looked_back_on_to_the_second(clock, history):
    assert SECONDS == 300
    history.add(record())
    for late, load, first in ((299, 1, 0), (300, 1, 1), (301, 0, 0)):
        clock.now = 1000.0 + late
        assert history.load("a", "1")["requests"] == load
        assert history.series()["requests"][0] == first


@pytest.mark.parametrize(
    ("outcome", "refused", "p50"), [(OK, 0, True), ("gone", 0, False), ("late", 1, False)]
)
def test_only_answers_have_times_and_who_is_gone_was_not_refused(history, outcome, refused, p50):
    history.add(record(outcome=outcome))
    found = history.load("a", "1")
    assert (found["requests"], found["refused"]) == (1, refused)
    assert (found["p50_ms"] is not None) == (found["p99_ms"] is not None) == p50


def test_a_quantile_is_the_first_time_that_so_many_are_not_above(history):
    for seconds in (0.001, 0.1):
        history.add(record(seconds))
    assert history.load("a", "1")["p50_ms"] == pytest.approx(1, rel=0.026)
    history.add(record(0.1))
    assert history.load("a", "1")["p50_ms"] == pytest.approx(100, rel=0.026)


def test_an_image_input_is_told(signature, history):
    models = Models(signature)
    reading = Reading(input="x", size=8)
    models.served.manifest = models.served.manifest.model_copy(update={"images": reading})
    _, _, body = get(models, history, "/page/state")
    assert orjson.loads(body)["models"][0]["images"] == "x"
