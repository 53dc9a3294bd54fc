"""`slipstream ask`: the same answers from a package and from a server; pictures in JSON."""

from __future__ import annotations

import base64
import json
import socket
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cli import in_process, usage_error
from onnx import TensorProto, helper
from PIL import Image

pytest.importorskip("starlette")

from slipstream import infer

COLOURS = {"azure": (20, 60, 220), "grass": (40, 200, 30), "rust": (210, 40, 20)}
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that tells the main colour of a picture; classes are three folder names."""
    folder = tmp_path_factory.mktemp("colours")
    for name, colour in COLOURS.items():
        (folder / "data" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), colour).save(folder / "data" / name / "one.png")
        Image.new("RGB", (64, 48), colour).save(folder / f"{name}.png")
    value = helper.make_tensor_value_info
    blue_first = np.float32([[0, 0, 1], [0, 1, 0], [1, 0, 0]])
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["means"]),
            helper.make_node("MatMul", ["means", "order"], ["colours"]),
        ],
        "colours",
        [value("image", TensorProto.FLOAT, [1, 3, 16, 16])],
        [value("colours", TensorProto.FLOAT, [1, 3])],
        [onnx.numpy_helper.from_array(blue_first, "order")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    infer.compile(
        model.SerializeToString(), folder / "colours.slip",
        infer.CompileOptions(data=folder / "data", pixels=True, top=2, seconds=0.5, threads=1,
                             engines=("onnxruntime",)),
    )  # fmt: skip
    return folder


def asked(*arguments: str | Path) -> list[dict[str, Any]]:
    done = in_process("ask", *map(str, arguments), "--json")
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow("server that runs long")
def test_a_server_and_a_package_say_the_same_of_pictures(
    colours: Path, serve: Callable[..., Any], packages: dict[str, Path]
) -> None:
    server = serve(colours / "colours.slip", packages["double"])
    files = [colours / f"{name}.png" for name in COLOURS]
    here = asked(colours / "colours.slip", *files)
    assert asked(f"http://{server.rest}/v2/models/colours", *files) == here
    assert [each["classes"][0] for each in here] == list(COLOURS)
    assert [each["outputs"]["labels"][0][0] for each in here] == [0, 1, 2]
    shown = in_process("ask", str(colours / "colours.slip"), str(files[1])).stdout
    assert [line.split() for line in shown.splitlines()[1:3]][1][1:] == ["1", "grass"]
    named = usage_error("ask", f"http://{server.rest}", str(files[0]))
    assert "has 2 models; name one of http://" in named


def test_arrays_are_asked_about_as_well(
    serve: Callable[..., Any], packages: dict[str, Path], tmp_path: Path
) -> None:
    server = serve(packages["double"])
    x = np.float32([[1, 2.5, np.inf, np.nan]])
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    for target in (packages["double"], f"http://{server.rest}"):
        for file in ("x.npy", "x.npz"):
            (found,) = asked(target, tmp_path / file)
            np.testing.assert_array_equal(found["outputs"]["y"][0][:2], [2, 5])
    shown = in_process("ask", str(packages["double"]), str(tmp_path / "x.npy")).stdout
    assert "  y float32 (1, 4): 2, 5, inf, nan" in shown


def test_a_token_lets_in(
    serve: Callable[..., Any], packages: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(f"# of this test\n{TOKEN}\n")
    (tmp_path / "none").write_text("# nothing\n")
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    server = serve(packages["double"], "--token-file", tmp_path / "tokens")
    refused = in_process("ask", f"http://{server.rest}", str(tmp_path / "x.npy"))
    assert (refused.code, "token" in refused.stderr) == (1, True)
    asking = (f"http://{server.rest}", tmp_path / "x.npy", "--token-file")
    assert asked(*asking, tmp_path / "tokens")[0]["outputs"]["y"] == [[0, 0, 0, 0]]
    for name in ("none", "nowhere"):
        assert f"{name} " in usage_error("ask", *map(str, asking), str(tmp_path / name))


def test_pictures_go_into_json_as_base64(colours: Path, serve: Callable[..., Any]) -> None:
    """A shell can send pictures in JSON, because no length has to come before them."""
    server = serve(colours / "colours.slip")
    texts = [base64.b64encode((colours / f"{name}.png").read_bytes()).decode() for name in COLOURS]

    def infer_of(data: Any, rows: int) -> tuple[int, Any]:
        given = {"name": "image", "datatype": "BYTES", "shape": [rows], "data": data}
        body = json.dumps({"inputs": [given]}).encode()
        url = f"http://{server.rest}/v2/models/colours/infer"
        try:
            with urllib.request.urlopen(url, body, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    status, found = infer_of([{"b64": text} for text in texts[:2]], 2)
    assert status == 200
    labels = found["outputs"][0]
    assert labels["parameters"]["classes"][::2] == ["azure", "grass"]
    for data, rows, words in (
        ([{"b64": texts[0]}], 2, "has 1 elements"),
        (["text"], 1, 'in JSON each element is {"b64"'),
        ([{"b64": "%%"}], 1, 'in JSON each element is {"b64"'),
        ([{"b64": "AAAA"}], 1, "image"),
    ):
        status, found = infer_of(data, rows)
        assert (status, words in found["error"]) == (400, True), found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["double", "none.png"], "none.png: there is no such file"),
        (["double", "picture.png"], "is an image, but the model accepts none"),
        (["double", "text.txt"], "unknown kind of file; allowed: .npy, .npz, .bmp"),
        (["double", "broken.npy"], "broken.npy: NumPy cannot read it"),
        (["http://127.0.0.1:1?x", "x.npy"], "allowed: http://host:port"),
        (["none.slip", "x.npy"], "none.slip does not exist"),
    ],
)
def test_wrong_usage_is_said_in_a_line(
    packages: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("picture.png", "text.txt", "broken.npy"):
        Path(name).write_bytes(b"nothing")
    np.save("x.npy", np.zeros((1, 4), np.float32))
    target, file = arguments
    assert words in usage_error("ask", str(packages.get(target, target)), file)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    done = in_process("ask", "http://127.0.0.1:1", str(tmp_path / "x.npy"))
    assert (done.code, "cannot be reached: Connection refused" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "cannot be reached: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "does not answer as the Open Inf"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "does not answer as the Open Inf"),
    ],
)
def test_what_is_no_such_server_is_said_in_a_line(
    tmp_path: Path, answer: bytes, words: str
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve_one() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve_one)
        thread.start()
        target = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = in_process("ask", target, str(tmp_path / "x.npy"))
        thread.join()
    assert (done.code, words in done.stderr, done.stderr.count("\n")) == (1, True, 1), done
