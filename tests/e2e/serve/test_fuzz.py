"""Requests that nobody would write: each is answered, none by an error of the server's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest

from slipstream.serve.protocol.grpc_messages import SERVICE, message

pytestmark = pytest.mark.multiprocess

# 100,000 of both, where somebody asks for as many.
BODIES = int(os.environ.get("FUZZ_BODIES", "3000"))
GROWTH_MIB = 64
NUMBERS = (b"0", b"-1", b"1e9", b"99999999999999999999", b"null", b"[]", b"{}", b'"x"', b"NaN")
GOOD = {
    "id": "1",
    "parameters": {"timeout": 1000000},
    "inputs": [
        {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    ],
    "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
}
OK, REFUSED = 200, range(400, 500)


def bodies(random: np.random.Generator, count: int) -> Iterator[tuple[str, bytes, str | None]]:
    """Yield paths, bodies and lengths of JSON; some of the bodies are damaged."""
    head = json.dumps(GOOD).encode()
    for _ in range(count):
        whole = bytearray(head + np.ones(4, np.float32).tobytes())
        way = random.integers(5)
        if way == 0:
            del whole[random.integers(len(whole)) :]
        elif way == 1:
            places = [i for i, each in enumerate(head) if chr(each).isdigit()]
            at = places[random.integers(len(places))]
            whole[at : at + 1] = NUMBERS[random.integers(len(NUMBERS))]
        elif way == 2:
            for place in random.integers(len(whole), size=random.integers(1, 6)):
                whole[place] = random.integers(256)
        elif way == 3:
            whole = bytearray(random.integers(0, 256, random.integers(200), np.uint8).tobytes())
        lengths = (str(len(head)), None, "-1", "0", "x", str(10**12))
        length = lengths[0] if random.random() < 0.7 else lengths[random.integers(6)]
        paths = ("double", "double/versions/1", "double/versions/%00", "..%2f..", "x" * 300)
        path = paths[0] if random.random() < 0.8 else paths[random.integers(5)]
        yield f"/v2/models/{path}/infer", bytes(whole), length


async def posted(server: str, asked: list[tuple[str, bytes, str | None]]) -> list[int]:
    """Return the statuses of successive requests on one connection."""
    host, port = server.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    statuses: list[int] = []
    for path, body, length in asked:
        fields = "" if length is None else f"Inference-Header-Content-Length: {length}\r\n"
        first = f"POST {path} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
        writer.write(first.encode() + body)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        statuses.append(int(head.split(b" ", 2)[1]))
        (size,) = (
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        await reader.readexactly(size)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return statuses


def resident(server: Any) -> float:
    return psutil.Process(server.process.pid).memory_info().rss / 2**20


@pytest.fixture(scope="module")
def fuzzed(serve: Callable[..., Any], packages: dict[str, Path]) -> Any:
    return serve(str(packages["double"]))


@pytest.mark.slow("damaged requests")
def test_damaged_bodies_of_rest_are_refused(fuzzed: Any) -> None:
    random = np.random.default_rng(7)
    asyncio.run(posted(fuzzed.rest, list(bodies(random, BODIES // 10))))
    before = resident(fuzzed)

    async def main() -> list[int]:
        asked = [list(bodies(random, BODIES // 4)) for _ in range(4)]
        found = await asyncio.gather(*(posted(fuzzed.rest, each) for each in asked))
        return [status for each in found for status in each]

    statuses = asyncio.run(main())
    assert {each for each in statuses if each != OK and each not in REFUSED} == set()
    assert statuses.count(OK) > BODIES // 20
    assert resident(fuzzed) - before < GROWTH_MIB
    assert fuzzed.process.poll() is None


@pytest.mark.slow("damaged requests")
def test_damaged_messages_of_grpc_are_refused(fuzzed: Any) -> None:
    random = np.random.default_rng(8)
    good = message("ModelInferRequest")(model_name="double", id="1")
    good.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    good.raw_input_contents.append(np.ones(4, np.float32).tobytes())
    whole = good.SerializeToString()
    allowed = {
        grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED,
    }  # fmt: skip
    before = resident(fuzzed)
    codes = []
    with grpc.insecure_channel(fuzzed.grpc) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        for _ in range(BODIES):
            raw = bytearray(whole[: random.integers(1, len(whole) + 1)])
            for place in random.integers(len(raw), size=random.integers(4)):
                raw[place] = random.integers(256)
            try:
                ask(bytes(raw), timeout=30)
                codes.append(grpc.StatusCode.OK)
            except grpc.RpcError as error:
                codes.append(error.code())
                assert error.code() in allowed, error.details()  # noqa: PT017
    assert set(codes) <= allowed
    assert resident(fuzzed) - before < GROWTH_MIB
    assert fuzzed.process.poll() is None
