"""Servers that run, and small packages for them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper

from slipstream import infer

SIZE = 4


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    process: subprocess.Popen[str]
    rest: str
    grpc: str

    def http(self) -> Any:
        return tritonclient.http.InferenceServerClient(self.rest, concurrency=8)

    def rpc(self) -> Any:
        return tritonclient.grpc.InferenceServerClient(self.grpc)


def package(path: Path, factor: float, rows: int = 1) -> Path:
    """A model of `factor` times its input, float32 (rows, 4)."""
    shape = [rows, SIZE]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "times",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    infer.compile(model.SerializeToString(), path, seconds=0.5, threads=1, engines=("onnxruntime",))
    return path


def slow_package(path: Path) -> Path:
    """A model that takes tenths of a second: float32 (1, 1024) through many products."""
    steps = 60
    values = ["x", *(f"v{step}" for step in range(1, steps)), "y"]
    weight = (np.eye(1024) + 0.5 / 1024).astype(np.float32)
    graph = helper.make_graph(
        [
            node
            for before, after in pairwise(values)
            for node in (
                helper.make_node("MatMul", [before, "weight"], [f"{after}p"]),
                helper.make_node("Tanh", [f"{after}p"], [after]),
            )
        ],
        "slow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 512, 1024])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 512, 1024])],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    infer.compile(model.SerializeToString(), path, seconds=0.5, threads=1, engines=("onnxruntime",))
    return path


@pytest.fixture(scope="session")
def make_package() -> Callable[[Path, float], Path]:
    return package


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    return {
        "double": package(folder / "double.slip", 2.0),
        "triple": package(folder / "triple.slip", 3.0),
        "rows": package(folder / "rows.slip", 5.0, rows=4),
        "slow": slow_package(folder / "slow.slip"),
    }


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers, and ends those that still run."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Served:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("slipstream")), "serve", *arguments,
             "--port", "0", "--grpc-port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        said = ""
        while "gRPC" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        rest, rpc = re.findall(r"127\.0\.0\.1:\d+", said)
        return Served(process, rest, rpc)

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served], packages: dict[str, Path]) -> Served:
    return serve(str(packages["double"]), str(packages["rows"]))
