"""Servers that run, and small packages for them."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper

from slipstream import infer

SIZE = 4
LIMIT_SECONDS = 60.0


class Served:
    """A running server, with its addresses and its output.

    Args:
        process: Process of the server, with standard output and error in one pipe.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._is_at_end = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def rest(self) -> str:
        return f"127.0.0.1:{self.wait_for(r'REST +https?://.+:([0-9]+)')[1]}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.wait_for(r'gRPC +.+:([0-9]+)')[1]}"

    def http(self) -> Any:
        return tritonclient.http.InferenceServerClient(self.rest, concurrency=8)

    def rpc(self) -> Any:
        return tritonclient.grpc.InferenceServerClient(self.grpc)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match in what the server says; wait until there is one."""
        with self._changed:
            while (found := re.search(pattern, "".join(self._lines))) is None:
                is_waiting = not self._is_at_end and self._changed.wait(LIMIT_SECONDS)
                assert is_waiting, f"no {pattern} in {self._lines}"
        return found

    def close(self) -> None:
        """Kill the process, if it still runs."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._take([line])
        self._is_at_end = True
        self._take([])

    def _take(self, lines: list[str]) -> None:
        with self._changed:
            self._lines += lines
            self._changed.notify_all()


def ask(client: Any, model: str, array: np.ndarray[Any, Any], **more: Any) -> np.ndarray[Any, Any]:
    """Return what a model makes of an array, asked through a client of either kind."""
    kind = sys.modules[type(client).__module__.rpartition(".")[0]]
    given = kind.InferInput("x", array.shape, "FP32")
    given.set_data_from_numpy(array)
    return client.infer(model, [given], **more).as_numpy("y")


def wait_until(is_so: Callable[[], object]) -> None:
    """Return as soon as the condition holds; fail if it does not within a minute."""
    end = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def package(path: Path, factor: float, rows: int = 1) -> Path:
    """Return the package of a model of `factor` times its input, float32 (rows, 4)."""
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
    infer.compile(
        model.SerializeToString(),
        path,
        infer.CompileOptions(seconds=0.5, threads=1, engines=("onnxruntime",)),
    )
    return path


@pytest.fixture(scope="session")
def make_package() -> Callable[[Path, float], Path]:
    return package


@pytest.fixture(name="ask", scope="session")
def ask_fixture() -> Callable[..., np.ndarray[Any, Any]]:
    return ask


@pytest.fixture(name="wait_until", scope="session")
def wait_until_fixture() -> Callable[[Callable[[], object]], None]:
    return wait_until


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    return {
        "double": package(folder / "double.slip", 2.0),
        "triple": package(folder / "triple.slip", 3.0),
        "rows": package(folder / "rows.slip", 5.0, rows=4),
    }


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Served]]:
    """Start servers by any command, and end those that still run after the module."""
    started: list[Served] = []

    def begin(*command: str) -> Served:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(Served(process))
        started[-1].wait_for("REST")
        return started[-1]

    yield begin
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def serve(start: Callable[..., Served]) -> Callable[..., Served]:
    """Start `slipstream serve` on free ports."""
    program = str(Path(sys.executable).with_name("slipstream"))
    return lambda *arguments: start(program, "serve", *arguments, "--port", "0", "--grpc-port", "0")


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served], packages: dict[str, Path]) -> Served:
    return serve(str(packages["double"]), str(packages["rows"]))
