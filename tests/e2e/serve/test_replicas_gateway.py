"""`slipstream serve --replicas MIN:MAX`: replicas are killed, scaled and replaced under load."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.utils

pytest.importorskip("starlette")

from replica_load import LIMIT_SECONDS, Clients, connect, get, infer, read, ready
from waiting import wait_until

pytestmark = pytest.mark.multiprocess

KILLS = int(os.environ.get("KILLS", "2"))


def processes(running: Any) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children()


def waits_for(running: Any, count: int) -> None:
    wait_until(lambda: len(ready(running.rest)) == count)


@pytest.fixture(scope="module")
def three(serve: Callable[..., Any], packages: dict[str, Path]) -> Any:
    running = serve(f"m={packages['double']}", "--replicas", "3:3")
    waits_for(running, 3)
    return running


@pytest.mark.slow("gateway loss")
def test_replicas_that_are_killed_under_load_fail_no_request(three: Any) -> None:
    with Clients(three.rest, 6).asking() as clients:
        for _ in range(KILLS):
            oldest = min(processes(three), key=lambda each: each.create_time())
            before = clients.answered
            oldest.kill()
            # Its end is noticed, another one takes its place, and requests go on meanwhile.
            wait_until(lambda oldest=oldest: oldest not in processes(three))
            waits_for(three, 3)
            wait_until(lambda before=before: clients.answered > before + 20)
    events = [each["event"] for each in get(three.rest, "/replicas")["events"]]
    assert sum(" is lost: " in each for each in events) == KILLS


@pytest.mark.slow("gateway loss")
def test_a_replica_that_hangs_under_load_fails_no_request(three: Any) -> None:
    with Clients(three.rest, 4).asking() as clients:
        stopped = processes(three)[0]
        stopped.suspend()
        wait_until(lambda: stopped not in processes(three))
        before = clients.answered
        wait_until(lambda: clients.answered > before + 20)
        waits_for(three, 3)


@pytest.mark.slow("gateway loss")
def test_calls_of_grpc_survive_a_replica_that_is_killed_and_one_that_hangs(
    three: Any, ask: Callable[..., Any]
) -> None:
    ended = threading.Event()
    answered: Counter[int] = Counter()

    def call(number: int) -> None:
        client = three.rpc()
        while not ended.is_set():
            array = np.full((1, 4), answered[number], np.float32)
            np.testing.assert_array_equal(ask(client, "m", array), 2 * array)
            answered[number] += 1
        client.close()

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(call, number) for number in range(3)]
        try:
            for act in (psutil.Process.kill, psutil.Process.suspend):
                victim = processes(three)[0]
                act(victim)
                wait_until(lambda victim=victim: victim not in processes(three))
                before = answered.copy()
                wait_until(lambda before=before: all(answered[n] > before[n] + 5 for n in before))
                waits_for(three, 3)
        finally:
            ended.set()
        for each in calls:
            each.result()


def test_grpc_says_what_the_replica_and_the_gateway_say(three: Any) -> None:
    client = three.rpc()
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_model_metadata("m").inputs[0].name == "x"
    with pytest.raises(tritonclient.utils.InferenceServerException, match="no model 'other'"):
        client.get_model_metadata("other")
    client.close()


def test_what_a_replica_says_arrives_unchanged(three: Any) -> None:
    assert get(three.rest, "/v2/models/m")["inputs"][0]["name"] == "x"
    assert "there is no model 'other'" in get(three.rest, "/v2/models/other")["error"]
    assert b"slipstream_gateway_requests_total" in read(three.rest, "/metrics")
    assert read(three.rest, "/v2/health/ready") == b""


def test_replicas_end_with_their_gateway(three: Any) -> None:
    left = processes(three)
    three.process.kill()
    three.process.wait()
    assert len(left) == 3
    _, alive = psutil.wait_procs(left, LIMIT_SECONDS)
    assert not alive


@pytest.mark.slow("gateway change")
def test_replicas_follow_the_load_down_to_none_and_back(
    serve: Callable[..., Any], make_package: Callable[..., Path], tmp_path: Path
) -> None:
    # A batch waits for more requests than there are clients, so each request is open for a while.
    wide = make_package(tmp_path / "wide.slip", 2.0, rows=64)
    scaling = ("--target-open", "2", "--cool-down", "1s", "--idle", "2s", "--delay", "300ms")
    running = serve(f"m={wide}", "--replicas", "0:3", "--target-latency", "9s", *scaling)
    with Clients(running.rest, 6).asking():
        waits_for(running, 3)
    with Clients(running.rest, 1, pause=0.1).asking():
        waits_for(running, 1)
    wait_until(lambda: not get(running.rest, "/replicas")["replicas"])
    with contextlib.closing(connect(running.rest)) as connection:
        assert infer(connection)[0] == 200
    reasons = [each.get("reason", "") for each in get(running.rest, "/replicas")["events"]]
    words = ("requests are open, 2 a replica allowed", "were enough for", "no request for", "came")
    for word in words:
        assert any(word in reason for reason in reasons), (word, reasons)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(LIMIT_SECONDS) == 0


@pytest.mark.slow("gateway change")
def test_a_new_file_replaces_the_replicas_one_by_one(
    serve: Callable[..., Any], packages: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "m.slip"
    put(packages["double"], file)
    running = serve(f"m={file}", "--replicas", "2:2")
    waits_for(running, 2)
    with Clients(running.rest, 4).asking() as clients:
        wait_until(lambda: clients.factors[2.0] > 50)
        put(packages["triple"], file)
        wait_until(lambda: len(ready(running.rest, generation=2)) == 2)
        wait_until(lambda: not of_state(running, "draining"))
        before = clients.factors.copy()
        wait_until(lambda: clients.factors[3.0] > before[3.0] + 50)
        assert clients.factors[2.0] == before[2.0]
        file.write_bytes(b"no model")
        running.wait_for("generation 3 cannot be served; the old one stays")
        left = processes(running)
        left[0].kill()
        wait_until(lambda: left[0] not in processes(running))
        waits_for(running, 2)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(LIMIT_SECONDS) == 0


def put(package: Path, file: Path) -> None:
    """Replace a file as one should: by a rename."""
    part = file.with_suffix(".part")
    shutil.copyfile(package, part)
    part.rename(file)


def of_state(running: Any, state: str) -> Sequence[Any]:
    return [each for each in get(running.rest, "/replicas")["replicas"] if each["state"] == state]
