"""What a server counts and logs of its requests, also of clients that hang up."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("starlette")

import tritonclient.http
from tritonclient.utils import InferenceServerException

from slipstream import infer

pytestmark = pytest.mark.multiprocess

SIZE = 4
SLOW_SHAPE = (1, 512, 1024)
SLOW_STEPS = 15
CLIENTS = 12
Ask = Callable[..., "np.ndarray[Any, Any]"]


def slow_package(path: Path) -> Path:
    """Return a model that takes tenths of a second, by many products."""
    values = ["x", *(f"v{step}" for step in range(1, SLOW_STEPS)), "y"]
    weight = (np.eye(1024) + 0.5 / 1024).astype(np.float32)
    nodes = [
        node
        for before, after in pairwise(values)
        for node in (
            helper.make_node("MatMul", [before, "weight"], [f"{after}p"]),
            helper.make_node("Tanh", [f"{after}p"], [after]),
        )
    ]
    given, made = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SLOW_SHAPE) for name in "xy"
    )
    graph = helper.make_graph(
        nodes, "slow", [given], [made], [numpy_helper.from_array(weight, "weight")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    infer.compile(
        model.SerializeToString(),
        path,
        infer.CompileOptions(seconds=0.5, threads=1, engines=("onnxruntime",)),
    )
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "access.log"


@pytest.fixture(scope="module")
def running(
    serve: Callable[..., Any], packages: dict[str, Path], log: Path, tmp_path_factory: Any
) -> Any:
    """Return a server that writes a log, with a quick model, `rows`, and a slow one."""
    slow = slow_package(tmp_path_factory.mktemp("slow") / "slow.slip")
    return serve(str(packages["rows"]), str(slow), "--access-log", str(log), "--timeout", "60")


def logged(log: Path, *models: str) -> Iterator[dict[str, Any]]:
    lines = map(json.loads, log.read_text().splitlines())
    return (line for line in lines if line["model"] in models)


def numbers(running: Any) -> list[str]:
    with urllib.request.urlopen(f"http://{running.rest}/metrics") as response:
        return response.read().decode().splitlines()


@pytest.mark.slow("server that runs long")
def test_requests_are_counted_and_logged_with_their_trace(
    running: Any, ask: Ask, log: Path
) -> None:
    trace = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "tracestate": "vendor=1"}
    array = np.ones((2, SIZE), np.float32)
    given = tritonclient.http.InferInput("x", array.shape, "FP32").set_data_from_numpy(array)
    found = running.http().infer("rows", [given], headers=dict(trace), request_id="7")
    assert found.get_response()["id"] == "7"
    ask(running.rpc(), "rows", array, headers=trace)
    with pytest.raises(InferenceServerException):
        ask(running.http(), "rows", np.ones((1, 5), np.float32))
    with pytest.raises(InferenceServerException):
        ask(running.http(), "../../etc/passwd", array)
    found_numbers = numbers(running)
    for line in (
        'slipstream_requests_total{model="rows",outcome="ok",protocol="rest",version="1"} 1.0',
        'slipstream_requests_total{model="rows",outcome="ok",protocol="grpc",version="1"} 1.0',
        'slipstream_requests_total{model="rows",outcome="invalid",protocol="rest",version="1"} 1.0',
        'slipstream_run_rows_bucket{le="2.0",model="rows",version="1"} 2.0',
        'slipstream_waiting{model="rows",version="1"} 0.0',
        'slipstream_request_seconds_count{model="rows",version="1"} 2.0',
    ):
        assert line in found_numbers
    first, second, wrong, *_ = logged(log, "rows", "")
    assert [each["outcome"] for each in (first, second, wrong)] == ["ok", "ok", "invalid"]
    traces = [each.get("trace_id") for each in (first, second, wrong)]
    assert traces == ["ab" * 16, "ab" * 16, None]
    body, _ = tritonclient.http.InferenceServerClient.generate_request_body([given], request_id="7")
    assert first["bytes"] == len(body)
    assert (first["protocol"], first["id"], first["rows"], first["run_rows"]) == ("rest", "7", 2, 2)
    assert first["ms"] >= first["run_ms"] > 0
    assert "has the shape [1, 5]" in wrong["error"]


def test_clients_that_hang_up_free_their_places(
    running: Any, ask: Ask, log: Path, wait_until: Callable[[Callable[[], object]], None]
) -> None:
    array, rpc = np.zeros(SLOW_SHAPE, np.float32), running.rpc()

    def used() -> float:
        """Processor seconds of the server, which other programs do not change."""
        times = psutil.Process(running.process.pid).cpu_times()
        return times.user + times.system

    before = used()
    ask(rpc, "slow", array)
    of_one = used() - before
    hang_up(running, array, lambda: wait_until(lambda: held(running) >= CLIENTS - 4))
    with pytest.raises(InferenceServerException):
        ask(rpc, "slow", array, client_timeout=0.05)
    np.testing.assert_array_equal(ask(rpc, "slow", array), array)
    # Those that hung up are not run, other than the few that had begun.
    assert used() - before < 10 * of_one
    outcomes = [line["outcome"] for line in logged(log, "slow")]
    assert outcomes.count("gone") >= 8


def held(running: Any) -> float:
    """Return how many requests for the slow model have no answer yet."""
    kinds = 'slipstream_waiting{model="slow"', 'slipstream_running{model="slow"'
    return sum(float(line.split()[-1]) for line in numbers(running) if line.startswith(kinds))


def hang_up(running: Any, array: np.ndarray[Any, Any], wait: Callable[[], None]) -> None:
    """Ask the slow model from many connections, and close them once `wait` returns."""
    given = tritonclient.http.InferInput("x", array.shape, "FP32")
    given.set_data_from_numpy(array)
    body, length = tritonclient.http.InferenceServerClient.generate_request_body([given])
    head = (
        f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {length}\r\n\r\n"
    )
    host, port = running.rest.split(":")
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(head.encode() + body)
        wait()
