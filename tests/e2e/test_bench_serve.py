"""`slipstream bench serve` on a tiny model, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import usage_error

pytest.importorskip("starlette")
pytest.importorskip("fastapi")

import onnx
from onnx import TensorProto, helper

from slipstream import infer

pytestmark = pytest.mark.multiprocess

Bench = Callable[..., "subprocess.CompletedProcess[str]"]


def times(factor: float) -> bytes:
    """Return a model of `factor` times its input, float32 (1, 4)."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "times",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("bench")
    (found / "double.onnx").write_bytes(times(2.0))
    (found / "half.onnx").write_bytes(times(-0.5))
    how = {"seconds": 0.5, "threads": 1, "engines": ("onnxruntime",)}
    infer.compile(times(2.0), found / "double.slip", infer.CompileOptions(**how))
    return found


@pytest.fixture
def bench(folder: Path) -> Bench:
    """Return a function that runs the command in the folder of the files."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = str(Path(sys.executable).with_name("slipstream"))
        command = [program, "bench", "serve", "double.slip", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.slow("bench of inference")
def test_a_server_is_measured_beside_its_peer(bench: Bench, folder: Path):
    done = bench(
        "--onnx", "double.onnx", "--clients", "1,2", "--turn-time", "200ms", "--rounds", "2",
        "--open", "0.2:500ms", "--deadline", "1s", "-o", "out/serve.json",
        "--chart", "curve.svg",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for text in (
        "double.slip by onnxruntime",
        "fastapi",
        "in process",
        "overhead of serving",
        "met",
    ):
        assert text in done.stdout

    content = json.loads((folder / "out" / "serve.json").read_text())
    points = {(each["contender"], each["clients"]): each for each in content["closed"]}
    contenders = ("slipstream", "fastapi", "fastapi x2")
    served = {(name, clients) for name in contenders for clients in (1, 2)}
    assert set(points) == {("slipstream", 0), *served}
    assert all(len(each["turns"]) == 2 for each in points.values())
    assert all(each["middle"]["rate"] > 10 for each in points.values())
    assert content["added_seconds"] > 0
    assert content["threads"] == 1
    assert [each["contender"] for each in content["open"]] == [*contenders]
    for each in content["open"]:
        assert set(each["statuses"]) == {"200"}
        assert len(each["memory_bytes"]) >= 2
    assert (folder / "curve.svg").read_text().startswith("<svg")


@pytest.mark.slow("bench of inference")
def test_a_peer_of_another_model_is_refused(bench: Bench):
    done = bench("--onnx", "half.onnx")
    assert done.returncode == 2
    assert done.stderr.startswith("slipstream: ")
    assert "give files of the same model" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow("bench of inference")
def test_overload_of_a_server_alone_is_refused_at_once(bench: Bench, folder: Path):
    done = bench(
        "--peers", "none", "--clients", "1", "--turn-time", "300ms", "--rounds", "1",
        "--open", "2:1s", "--deadline", "1ms", "-o", "alone.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (ours,) = json.loads((folder / "alone.json").read_text())["open"]
    assert set(ours["statuses"]) <= {"200", "429", "504", "0"}
    assert ours["accepted"] + ours["refused"] + ours["failed"] == sum(ours["statuses"].values())


@pytest.mark.slow("bench of inference")
def test_without_a_file_the_peer_runs_the_same_package(bench: Bench, folder: Path):
    done = bench(
        "--clients", "1", "--turn-time", "300ms", "--rounds", "1", "--open", "0", "-o", "same.json"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "engines are compared too" not in done.stdout + done.stderr
    content = json.loads((folder / "same.json").read_text())
    assert content["snr_db"]["fastapi"] > 60


def test_a_file_for_no_peer_is_refused(folder: Path):
    files = str(folder / "double.slip"), "--onnx", str(folder / "double.onnx")
    assert "onnx is a file for the peer, but the peer is none" in usage_error(
        "bench", "serve", *files, "--peers", "none"
    )
