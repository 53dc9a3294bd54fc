"""`slipstream serve` as users have it: a process, and the usual clients, which are many."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
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
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.multiprocess

SIZE = 4
ONE = np.ones((1, SIZE), np.float32)
Ask = Callable[..., "np.ndarray[Any, Any]"]
Serve = Callable[..., Any]


@pytest.mark.parametrize("kind", ["http", "rpc"])
def test_the_usual_clients_get_results(served: Any, ask: Ask, kind: str) -> None:
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
    served: Any, ask: Ask, kind: str, model: str, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InferenceServerException, match=words):
        ask(getattr(served, kind)(), model, np.zeros(shape, np.float32))


def test_requests_that_cannot_be_in_time_are_told_to_come_back(served: Any, ask: Ask) -> None:
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
        assert "send it again later" in json.loads(error.read())["error"]
    with pytest.raises(InferenceServerException) as refused:
        ask(served.rpc(), "double", np.zeros((64, SIZE), np.float32), timeout=1)
    assert refused.value.status() == str(grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_many_clients_get_their_own_results(served: Any, ask: Ask) -> None:
    def one(number: int) -> None:
        client = served.rpc()
        for step in range(30):
            array = np.full((1 + step % 3, SIZE), number * 100 + step, np.float32)
            np.testing.assert_array_equal(ask(client, "rows", array), 5 * array)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))


def test_shares_of_versions_are_kept_and_it_ends_when_told(
    serve: Serve, packages: dict[str, Path], ask: Ask
) -> None:
    running = serve(f"a={packages['double']}", f"a={packages['triple']}@50%")
    client = running.rpc()
    assert {float(ask(client, "a", ONE)[0, 0]) for _ in range(60)} == {2.0, 3.0}
    for version, factor in (("1", 2.0), ("2", 3.0)):
        assert ask(client, "a", ONE, model_version=version)[0, 0] == factor
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 0


def test_who_balances_the_load_has_notice_of_the_end(
    serve: Serve, packages: dict[str, Path], ask: Ask
) -> None:
    """Requests that come meanwhile are answered, and each connection ends with its answer."""
    running = serve(packages["double"], "--notice", "60")
    given = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    body = json.dumps({"inputs": [given]})
    before, rpc = http.client.HTTPConnection(running.rest), running.rpc()

    def answered(connection: http.client.HTTPConnection, method: str, path: str) -> Any:
        connection.request(method, path, body if method == "POST" else None)
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("connection")

    assert answered(before, "POST", "/v2/models/double/infer") == (200, None)
    running.process.send_signal(signal.SIGTERM)
    ready = [200]
    while ready[-1] == 200:
        once = http.client.HTTPConnection(running.rest)
        ready.append(answered(once, "GET", "/v2/health/ready")[0])
        once.close()
    assert ready[-1] == 503
    assert answered(before, "POST", "/v2/models/double/infer") == (200, "close")
    after = http.client.HTTPConnection(running.rest)
    assert answered(after, "POST", "/v2/models/double/infer") == (200, "close")
    assert answered(after, "GET", "/v2/models/double/ready") == (503, "close")
    assert answered(after, "GET", "/v2/health/live") == (200, "close")
    assert not rpc.is_server_ready()
    np.testing.assert_array_equal(ask(rpc, "double", ONE), 2 * ONE)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whom_nobody_else_reaches_ends_at_once(
    serve: Serve, packages: dict[str, Path], number: signal.Signals
) -> None:
    """And Ctrl-C waits for nobody."""
    notice = ("--notice", "60") if number == signal.SIGINT else ()
    running = serve(packages["double"], *notice)
    assert running.rest
    running.process.send_signal(number)
    assert running.process.wait(20) == 0


def test_it_serves_from_python(start: Serve, packages: dict[str, Path], ask: Ask) -> None:
    code = (
        "import sys; from slipstream import serve;"
        "serve.run(sys.argv[1], on_ready=lambda bound: print(f'REST http://{bound.rest}',"
        " flush=True), port=0, grpc_port=None)"
    )
    running = start(sys.executable, "-c", code, str(packages["double"]))
    np.testing.assert_array_equal(ask(running.http(), "double", ONE), 2 * ONE)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(20) == 0


def test_tokens_and_tls_let_in_who_has_them(
    serve: Serve, packages: dict[str, Path], ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("# of the tests\n0123456789abcdef\nanother-token-of-them\n")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    cert = tmp_path / "cert.pem"
    running = serve(
        str(packages["double"]), "--host", "0.0.0.0", "--token-file", str(tmp_path / "tokens"),
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
    for client in (rest, rpc):
        assert client.is_server_ready()
        for token in (None, "Bearer 0123456789abcdeX", "Basic 0123456789abcdef"):
            headers = {} if token is None else {"authorization": token}
            with pytest.raises(InferenceServerException, match="a token is needed"):
                ask(client, "double", ONE, headers=headers)
        headers = {"authorization": "Bearer another-token-of-them"}
        np.testing.assert_array_equal(ask(client, "double", ONE, headers=headers), 2 * ONE)
    rest.close()
    rpc.close()
