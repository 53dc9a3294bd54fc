"""New files that take the place of models while clients ask."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")

pytestmark = pytest.mark.multiprocess

ONE = np.ones((1, 4), np.float32)
CLIENTS = 3
RELOADS = int(os.environ.get("RELOADS", "10"))
# Looks at its files twenty times a second, where the command looks once.
SERVE = """
import sys
from slipstream import serve
serve.run(
    sys.argv[1], on_ready=lambda bound: print(f"REST http://{bound.rest}", flush=True),
    port=0, grpc_port=None, watch=0.05,
)
"""


class Load:
    """Clients that ask on and on, and the factors that each has seen, one after another."""

    def __init__(self, running: Any, ask: Callable[..., Any]) -> None:
        self._running, self._ask = running, ask
        self._ended = threading.Event()
        self.seen: list[list[int]] = [[] for _ in range(CLIENTS)]
        self.clients: list[Future[None]] = []

    @contextmanager
    def run(self) -> Iterator[None]:
        """Ask meanwhile; raise what went wrong at a client."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            self.clients = [pool.submit(self._ask_on, seen) for seen in self.seen]
            try:
                yield
            finally:
                self._ended.set()
            for each in self.clients:
                each.result()

    def has_reached(self, factor: int) -> bool:
        """Return whether all clients see this factor, or one of them has failed."""
        is_failed = any(each.done() for each in self.clients)
        return is_failed or all(seen[-1:] == [factor] for seen in self.seen)

    def _ask_on(self, seen: list[int]) -> None:
        client = self._running.http()
        while not self._ended.is_set():
            (factor,) = {int(each) for each in self._ask(client, "model", ONE).reshape(-1)}
            seen += [] if seen[-1:] == [factor] else [factor]


def test_a_new_file_takes_over_and_a_wrong_one_does_not(
    serve: Callable[..., Any],
    packages: dict[str, Path],
    ask: Callable[..., Any],
    wait_until: Callable[[Callable[[], object]], None],
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.slip"
    shutil.copy(packages["double"], path)
    running = serve(str(path))
    load = Load(running, ask)
    with load.run():
        wait_until(lambda: load.has_reached(2))
        replace(path, packages["triple"])
        wait_until(lambda: load.has_reached(3))
        path.write_bytes(b"no package")
        running.wait_for("model, version 1, is not replaced: .+")
        ask(running.http(), "model", ONE)
    assert load.seen == [[2, 3]] * CLIENTS
    assert running.process.poll() is None


@pytest.mark.slow("server that runs long")
def test_models_take_over_in_turn_and_none_comes_back(
    start: Callable[..., Any],
    make_package: Callable[[Path, float], Path],
    ask: Callable[..., Any],
    wait_until: Callable[[Callable[[], object]], None],
    tmp_path: Path,
) -> None:
    """The variable RELOADS sets the number of changes."""
    files = [make_package(tmp_path / f"of{factor}.slip", factor) for factor in range(1, 11)]
    path = tmp_path / "model.slip"
    shutil.copy(files[0], path)
    load = Load(start(sys.executable, "-c", SERVE, str(path)), ask)
    turns = [1 + turn % 10 for turn in range(1 + RELOADS)]
    with load.run():
        for factor in turns:
            replace(path, files[factor - 1])
            wait_until(lambda: load.has_reached(factor))  # noqa: B023
    assert load.seen == [turns] * CLIENTS


def replace(path: Path, package: Path) -> None:
    """Put a package in the place of a file, at once."""
    shutil.copy(package, path.with_name("new"))
    path.with_name("new").rename(path)
