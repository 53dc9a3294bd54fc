"""Replicas of `slipstream serve` that are killed while clients ask."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("starlette")

pytestmark = pytest.mark.multiprocess

SIZE = 4
KILLS = int(os.environ.get("KILLS", "3"))
LOADS = [("rpc", "rows", 5.0), ("http", "double", 2.0), ("rpc", "double", 2.0)]


def test_replicas_that_are_killed_are_not_noticed(
    serve: Callable[..., Any],
    packages: dict[str, Path],
    ask: Callable[..., Any],
    wait_until: Callable[[Callable[[], object]], None],
) -> None:
    running = serve(
        str(packages["rows"]), str(packages["double"]), "--replicas", "2", "--access-log", "-"
    )
    ended = threading.Event()
    answered: Counter[int] = Counter()

    def load(client_number: int) -> None:
        kind, model, factor = LOADS[client_number]
        client = getattr(running, kind)()
        while not ended.is_set():
            count = answered[client_number]
            array = np.full((1 + count % 3, SIZE), count, np.float32)
            np.testing.assert_array_equal(ask(client, model, array), factor * array)
            answered[client_number] += 1

    with ThreadPoolExecutor(len(LOADS)) as pool:
        clients = [pool.submit(load, number) for number in range(len(LOADS))]
        try:
            for _ in range(KILLS):
                oldest = min(workers(running), key=lambda each: each.create_time())
                oldest.kill()
                wait_until(partial(is_replaced, running, oldest))
                # After the second kill only replicas that were started again can answer.
                wait_until(partial(have_more, answered, dict(answered), clients))
        finally:
            ended.set()
        for each in clients:
            each.result()
    left = workers(running)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0
    assert not any(each.is_running() for each in left)


def have_more(now: Counter[int], before: dict[int, int], clients: list[Future[None]]) -> bool:
    """Return whether each client got ten more answers, or one of them has failed."""
    is_failed = any(each.done() for each in clients)
    return is_failed or all(now[each] >= before.get(each, 0) + 10 for each in range(len(LOADS)))


def is_replaced(running: Any, killed: psutil.Process) -> bool:
    now = workers(running)
    return len(now) == 2 and killed not in now


def workers(running: Any) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children()
