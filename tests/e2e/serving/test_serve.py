"""`slipstream serve` as users have it: a process, and the usual clients."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")

import grpc
import psutil
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from slipstream import infer
from slipstream.errors import UsageError

pytestmark = pytest.mark.multiprocess

SIZE = 4
Serve = Callable[..., Any]
ONE = np.ones((1, SIZE), np.float32)


def ask(client: Any, model: str, array: np.ndarray[Any, Any], **more: Any) -> np.ndarray[Any, Any]:
    kind = sys.modules[type(client).__module__.rpartition(".")[0]]
    given = kind.InferInput("x", array.shape, "FP32")
    given.set_data_from_numpy(array)
    return client.infer(model, [given], **more).as_numpy("y")


@pytest.mark.parametrize("kind", ["http", "rpc"])
def test_the_usual_clients_get_results(served: Any, kind: str) -> None:
    client = getattr(served, kind)()
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert not client.is_model_ready("other")
    random = np.random.default_rng(1)
    for rows in (1, 3, 9):
        array = random.random((rows, SIZE), np.float32)
        np.testing.assert_array_equal(ask(client, "double", array), 2 * array)
        np.testing.assert_allclose(ask(client, "rows", array, model_version="1"), 5 * array)


def test_metadata_are_the_same_over_both(served: Any) -> None:
    rest, rpc = served.http(), served.rpc()
    assert rest.get_model_metadata("rows") == rpc.get_model_metadata("rows", as_json=True) | {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, SIZE]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, SIZE]}],
    }
    assert rest.get_server_metadata()["name"] == rpc.get_server_metadata().name == "slipstream"


@pytest.mark.parametrize("kind", ["http", "rpc"])
@pytest.mark.parametrize(
    ("model", "shape", "words"),
    [
        ("other", (1, SIZE), "no model 'other'; there are double, rows"),
        ("double", (1, 5), r"has the shape \[1, 5\]; it has to be FP32 \[-1, 4\]"),
        ("double", (65, SIZE), "with 1 to 64 rows"),
    ],
)
def test_wrong_requests_say_what_is_right(
    served: Any, kind: str, model: str, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InferenceServerException, match=words):
        ask(getattr(served, kind)(), model, np.zeros(shape, np.float32))


def test_requests_that_cannot_be_in_time_are_told_to_come_back(served: Any) -> None:
    given = tritonclient.http.InferInput("x", [64, SIZE], "FP32")
    given.set_data_from_numpy(np.zeros((64, SIZE), np.float32))
    body, length = tritonclient.http.InferenceServerClient.generate_request_body([given], timeout=1)
    request = urllib.request.Request(
        f"http://{served.rest}/v2/models/double/infer",
        data=body,
        headers={"Inference-Header-Content-Length": str(length)},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as error:
        assert error.code == 429
        assert int(error.headers["retry-after"]) >= 1
        assert "ask again later" in json.loads(error.read())["error"]
    with pytest.raises(InferenceServerException) as refused:
        ask(served.rpc(), "double", np.zeros((64, SIZE), np.float32), timeout=1)
    assert refused.value.status() == str(grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_many_clients_get_their_own_results(served: Any) -> None:
    def one(number: int) -> None:
        client = served.rpc()
        for step in range(30):
            array = np.full((1 + step % 3, SIZE), number * 100 + step, np.float32)
            np.testing.assert_array_equal(ask(client, "rows", array), 5 * array)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))


def test_a_new_file_takes_over_without_a_lost_or_wrong_answer(
    serve: Serve, packages: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.slip"
    shutil.copy(packages["double"], path)
    running = serve(str(path))
    ended = threading.Event()
    factors: list[set[float]] = []

    def load() -> None:
        client, seen = running.http(), set[float]()
        factors.append(seen)
        array = np.ones((1, SIZE), np.float32)
        while not ended.is_set():
            (factor,) = {float(each) for each in ask(client, "model", array).reshape(-1)}
            seen.add(factor)

    with ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(load) for _ in range(2)]
        for name in ("triple", "double"):
            shutil.copy(packages[name], tmp_path / "new")
            (tmp_path / "new").rename(path)
            wanted = {"triple": 3.0, "double": 2.0}[name]
            client = running.http()
            _until(lambda: ask(client, "model", np.ones((1, SIZE), np.float32))[0, 0] == wanted)  # noqa: B023
        path.write_bytes(b"no package")
        time.sleep(3)
        ended.set()
        for each in clients:
            each.result()
    assert set.union(*factors) == {2.0, 3.0}
    assert running.process.poll() is None


@pytest.mark.slow("models that take over")
def test_ten_models_take_over_in_turn(
    serve: Serve, make_package: Callable[[Path, float], Path], tmp_path: Path
) -> None:
    """One every two seconds, of ten; RELOADS says how many times."""
    files = [make_package(tmp_path / f"of{factor}.slip", factor) for factor in range(1, 11)]
    path = tmp_path / "model.slip"
    shutil.copy(files[0], path)
    running = serve(str(path))
    ended = threading.Event()

    def load() -> list[int]:
        client, seen = running.http(), list[int]()
        while not ended.is_set():
            (factor,) = {int(each) for each in ask(client, "model", ONE).reshape(-1)}
            seen += [] if seen[-1:] == [factor] else [factor]
        return seen

    turns = [1 + turn % 10 for turn in range(1 + int(os.environ.get("RELOADS", "10")))]
    with ThreadPoolExecutor(3) as pool:
        clients = [pool.submit(load) for _ in range(3)]
        client = running.http()
        try:
            for factor in turns[1:]:
                shutil.copy(files[factor - 1], tmp_path / "new")
                (tmp_path / "new").rename(path)
                time.sleep(2)
                _until(lambda: ask(client, "model", ONE)[0, 0] == factor)  # noqa: B023
        finally:
            ended.set()
        # Each in its turn, and none again once the next was there.
        assert [each.result() for each in clients] == [turns] * 3


def test_it_ends_when_told_and_answers_what_it_has(serve: Serve, packages: dict[str, Path]) -> None:
    running = serve(f"a={packages['double']}", f"a={packages['triple']}@50%")
    client = running.rpc()
    found = {float(ask(client, "a", np.ones((1, SIZE), np.float32))[0, 0]) for _ in range(60)}
    assert found == {2.0, 3.0}
    for version, factor in (("1", 2.0), ("2", 3.0)):
        array = ask(client, "a", np.ones((1, SIZE), np.float32), model_version=version)
        assert array[0, 0] == factor
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 0


def test_replicas_that_are_killed_are_not_noticed(serve: Serve, packages: dict[str, Path]) -> None:
    running = serve(str(packages["rows"]), str(packages["double"]), "--replicas", "2")
    ended = threading.Event()

    def load(kind: str, model: str, factor: float) -> int:
        client, count = getattr(running, kind)(), 0
        while not ended.is_set():
            array = np.full((1 + count % 3, SIZE), count, np.float32)
            np.testing.assert_array_equal(ask(client, model, array), factor * array)
            count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        asked = [("rpc", "rows", 5.0), ("http", "double", 2.0), ("rpc", "double", 2.0)]
        clients = [pool.submit(load, *each) for each in asked]
        try:
            for turn in range(int(os.environ.get("KILLS", "4"))):
                workers = _workers(running)
                workers[turn % 2].kill()
                _until(partial(_are_replaced, running, workers[turn % 2]))
                time.sleep(2.5)
        finally:
            ended.set()
        assert min(each.result() for each in clients) > 10
    workers = _workers(running)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0
    assert not any(each.is_running() for each in workers)


def _are_replaced(running: Any, killed: psutil.Process) -> bool:
    now = _workers(running)
    return len(now) == 2 and killed not in now


def _workers(running: Any) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children()


def test_requests_are_counted_and_logged_with_their_trace(
    serve: Serve, packages: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    running = serve(str(packages["rows"]), "--access-log", str(log))
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
    with urllib.request.urlopen(f"http://{running.rest}/metrics") as response:
        numbers = response.read().decode()
    for line in (
        'slipstream_requests_total{model="rows",outcome="ok",protocol="rest",version="1"} 1.0',
        'slipstream_requests_total{model="rows",outcome="ok",protocol="grpc",version="1"} 1.0',
        'slipstream_requests_total{model="rows",outcome="invalid",protocol="rest",version="1"} 1.0',
        'slipstream_run_rows_bucket{le="2.0",model="rows",version="1"} 2.0',
        'slipstream_waiting{model="rows",version="1"} 0.0',
    ):
        assert line in numbers.splitlines()
    assert 'slipstream_request_seconds_count{model="rows",version="1"} 2.0' in numbers
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["outcome"] for line in lines][:3] == ["ok", "ok", "invalid"]
    assert [line.get("trace_id") for line in lines][:3] == ["ab" * 16, "ab" * 16, None]
    first, _, wrong = lines[:3]
    assert (first["protocol"], first["id"], first["rows"], first["run_rows"]) == ("rest", "7", 2, 2)
    assert first["ms"] >= first["run_ms"] > 0
    assert "has the shape [1, 5]" in wrong["error"]


def test_clients_that_hang_up_free_their_places(
    serve: Serve, packages: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    running = serve(str(packages["slow"]), "--access-log", str(log), "--timeout", "60")
    array = np.zeros((1, 512, 1024), np.float32)
    given = tritonclient.http.InferInput("x", array.shape, "FP32")
    given.set_data_from_numpy(array)
    body, length = tritonclient.http.InferenceServerClient.generate_request_body([given])
    head = (
        f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {length}\r\n\r\n"
    )
    host, port = running.rest.split(":")
    sockets = [socket.create_connection((host, int(port))) for _ in range(12)]
    for each in sockets:
        each.sendall(head.encode() + body)
    time.sleep(0.3)
    for each in sockets:
        each.close()
    rpc = running.rpc()
    with pytest.raises(InferenceServerException):
        ask(rpc, "slow", array, client_timeout=0.05)
    begin = time.monotonic()
    np.testing.assert_array_equal(ask(rpc, "slow", array), array)
    assert time.monotonic() - begin < 6
    outcomes = [json.loads(line)["outcome"] for line in log.read_text().splitlines()]
    assert outcomes.count("gone") >= 8


def test_tokens_and_tls_let_in_who_has_them(
    serve: Serve, packages: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("# of the tests\n0123456789abcdef\nanother-token-of-them\n")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    cert = tmp_path / "cert.pem"
    running = serve(
        str(packages["double"]), "--token-file", str(tmp_path / "tokens"),
        "--tls-cert", str(cert), "--tls-key", str(tmp_path / "key.pem"),
    )  # fmt: skip
    rest = tritonclient.http.InferenceServerClient(
        running.rest,
        ssl=True,
        ssl_options={"ca_certs": str(cert)},
        ssl_context_factory=partial(ssl.create_default_context, cafile=str(cert)),
    )
    rpc = tritonclient.grpc.InferenceServerClient(
        running.grpc, ssl=True, root_certificates=str(cert)
    )
    array = np.ones((1, SIZE), np.float32)
    for client in (rest, rpc):
        assert client.is_server_ready()
        for token in (None, "Bearer 0123456789abcdeX", "Basic 0123456789abcdef"):
            headers = {} if token is None else {"authorization": token}
            with pytest.raises(InferenceServerException, match="a token is needed"):
                ask(client, "double", array, headers=headers)
        headers = {"authorization": "Bearer another-token-of-them"}
        np.testing.assert_array_equal(ask(client, "double", array, headers=headers), 2 * array)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "others reach 0.0.0.0: say --token-file"),
        (["--tls-cert", "cert.pem"], "one of --tls-cert and --tls-key is missing"),
        (["--token-file", "none"], "none cannot be read as tokens"),
        (["--token-file", "short"], "has a token of less than 16 characters"),
        (["--token-file", "empty"], "has no token"),
        (["--access-log", "no/where"], "the access log no/where cannot be written"),
        (["--host", "192.0.2.1", "--everybody"], "cannot be listened on"),
        (["a=other.slip@120%"], "have 120% of its requests"),
        (["@"], "the model is '@'; allowed: file.slip"),
    ],
)
def test_wrong_usage_exits_with_2(
    packages: dict[str, Path], tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "empty").write_text("\n# nothing\n")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("slipstream")), "serve", str(packages["double"]),
         "--port", "0", "--grpc-port", "-1", *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_it_serves_from_python(packages: dict[str, Path]) -> None:
    code = (
        "import sys; from slipstream import infer;"
        "infer.serve(sys.argv[1], told=lambda bound: print(bound.rest, flush=True), port=0,"
        " grpc_port=None)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(packages["double"])], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        client = tritonclient.http.InferenceServerClient(process.stdout.readline().strip())
        array = np.ones((1, SIZE), np.float32)
        np.testing.assert_array_equal(ask(client, "double", array), 2 * array)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [((), {}, "no model is named"), (("a.slip",), {"ports": 1}, "no option 'ports'; options are")],
)
def test_options_from_python_are_checked(
    models: tuple[str, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        infer.serve(*models, **options)


def test_what_is_no_package_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.slip").write_bytes(b"bad")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("slipstream")), "serve", "bad.slip", "--port", "0"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "bad.slip" in done.stderr
    assert "Traceback" not in done.stderr


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)
