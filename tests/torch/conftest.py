"""Servers that have imported torch once and run what a test asks for in forked ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

RunScript = Callable[[int, str], None]


class LineServer:
    """A process that answers each line on its standard input with one line of JSON."""

    def __init__(self, *command: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line and return the answer; blocks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the server ended with status {self._process.wait()} at {line!r}")
        return json.loads(answer)

    def close(self) -> None:
        """End the server after its last answer."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="module")
def run_script() -> Iterator[RunScript]:
    """Return a function that runs a script of this folder on some ranks, none of which may fail."""
    yield from served_scripts(HERE / "scripts", "torch._dynamo")


@pytest.fixture(scope="module")
def run_trainer() -> Iterator[RunScript]:
    """Return a function that runs a script that trains through another package."""
    packages = ("accelerate", "lightning.pytorch", "transformers.trainer")
    yield from served_scripts(HERE / "trainers", *packages)


@pytest.fixture(scope="module", params=["slipstream", "ordered"])
def run_on_device(request: pytest.FixtureRequest) -> Iterator[RunScript]:
    """Return a function that runs a script of device/scripts, with a backend for its device."""
    build = [sys.executable, str(HERE / "device" / "build.py")]
    library = subprocess.run(build, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    yield from served_scripts(
        HERE / "device" / "scripts",
        "torch._dynamo",  # the first optimizer of a process imports it, in 3 s or more
        TESTSTREAM_BACKEND=request.param,
        TESTSTREAM_LIBRARY=library,
    )


def served_scripts(folder: Path, *modules: str, **environment: str) -> Iterator[RunScript]:
    """Yield a function that runs a script of the folder in ranks that have imported the modules."""
    server = LineServer(str(HERE / "script_server.py"), *modules, **environment)

    def run(count: int, name: str) -> None:
        answer = server.ask(f"{count} {folder / name}")
        assert answer["outcome"] == "passed", answer["detail"]

    yield run
    server.close()


@pytest.fixture(scope="module")
def run_suite_test() -> Iterator[Callable[[str, int, str], dict[str, Any]]]:
    """Yield a function that runs a test of PyTorch's suite; each way of running has its server."""
    servers: dict[tuple[str, int], LineServer] = {}

    def run(seen_as: str, world_size: int, name: str) -> dict[str, Any]:
        way = (seen_as, world_size)
        if way not in servers:
            servers[way] = LineServer(
                str(HERE / "suite_server.py"),
                *("--backend", "slipstream", "--seen-as", seen_as),
                *("--world-size", str(world_size)),
            )
        return servers[way].ask(name)

    yield run
    for server in servers.values():
        server.close()
