"""HTTP as clients speak it that are not the usual one: in pieces, at once, slowly."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NUMBERS = np.arange(4, dtype=np.float32)
PATH = "/v2/models/double/infer"


@pytest.fixture(scope="module")
def impatient(serve: Callable[..., Any], packages: dict[str, Path]) -> Any:
    return serve(str(packages["double"]), "--timeout", "1")


@pytest.fixture
def connection(impatient: Any) -> Iterator[socket.socket]:
    host, port = impatient.rest.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as found:
        yield found


def body(padding: int = 0) -> tuple[bytes, int]:
    """Return a request with longer JSON, and the length of its JSON."""
    said = {
        "name": "x", "datatype": "FP32", "shape": [1, NUMBERS.size],
        "parameters": {"binary_data_size": NUMBERS.nbytes},
    }  # fmt: skip
    head = json.dumps({"inputs": [said], "id": "a" * padding}).encode()
    return head + NUMBERS.tobytes(), len(head)


def request(content: bytes, json_length: int, *fields: str) -> bytes:
    lines = [
        f"POST {PATH} HTTP/1.1", "Host: a", f"Inference-Header-Content-Length: {json_length}",
        *fields, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + content


def answers(connection: socket.socket, count: int = 1) -> list[tuple[int, bytes]]:
    """Return status and body of a number of answers."""
    found: list[tuple[int, bytes]] = []
    with connection.makefile("rb") as stream:
        while len(found) < count:
            status = int(stream.readline().split()[1])
            length = 0
            while (line := stream.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if status != 100:
                found.append((status, stream.read(length)))
    return found


def is_right(answer: tuple[int, bytes]) -> bool:
    status, content = answer
    return status == 200 and json.loads(content)["outputs"][0]["data"] == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize("padding", [0, 1, 2, 3, 20_000, 300_000])
@pytest.mark.parametrize("size", [1 << 20, 40_000, 997])
def test_bodies_come_in_pieces_of_any_size(
    connection: socket.socket, padding: int, size: int
) -> None:
    content, json_length = body(padding)
    whole = request(content, json_length, f"Content-Length: {len(content)}")
    for _ in range(2):  # the connection is kept
        for begin in range(0, len(whole), size):
            connection.sendall(whole[begin : begin + size])
        assert is_right(answers(connection)[0])


@pytest.mark.parametrize("padding", [0, 100_000])
def test_requests_may_follow_each_other_before_they_are_answered(
    connection: socket.socket, padding: int
) -> None:
    content, json_length = body(padding)
    connection.sendall(request(content, json_length, f"Content-Length: {len(content)}") * 5)
    assert all(map(is_right, answers(connection, 5)))


def test_bodies_need_not_say_how_long_they_are(connection: socket.socket) -> None:
    content, json_length = body(70_000)
    pieces = [content[:10], content[10:50_000], content[50_000:]]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"
    connection.sendall(request(chunks, json_length, "Transfer-Encoding: chunked") * 2)
    assert all(map(is_right, answers(connection, 2)))


def test_clients_may_ask_before_they_send_a_body(connection: socket.socket) -> None:
    content, json_length = body(70_000)
    fields = f"Content-Length: {len(content)}", "Expect: 100-continue"
    connection.sendall(request(b"", json_length, *fields))
    assert connection.recv(1 << 10).startswith(b"HTTP/1.1 100 ")
    connection.sendall(content)
    assert is_right(answers(connection)[0])


def test_a_body_that_does_not_come_frees_its_place(connection: socket.socket) -> None:
    content, json_length = body(70_000)
    begin = time.monotonic()
    connection.sendall(request(content[:100], json_length, f"Content-Length: {len(content)}"))
    status, text = answers(connection)[0]
    assert status == 504
    assert b"the longest time allowed" in text
    assert 0.9 < time.monotonic() - begin < 10
    assert connection.recv(1) == b""  # what is still to come would be taken for a request


def test_a_client_that_wants_no_more_is_let_go(connection: socket.socket) -> None:
    content, json_length = body()
    fields = f"Content-Length: {len(content)}", "Connection: close"
    connection.sendall(request(content, json_length, *fields))
    assert is_right(answers(connection)[0])
    assert connection.recv(1) == b""


def test_other_methods_are_told_what_is_allowed(connection: socket.socket) -> None:
    connection.sendall(f"GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert answers(connection)[0][0] == 405


@pytest.mark.slow("server that runs long")
def test_a_connection_without_requests_stays_open_as_long_as_is_said(
    serve: Callable[..., Any], packages: dict[str, Path]
) -> None:
    seconds = 6  # where nothing is said to uvicorn, it is 5
    server = serve(str(packages["double"]), "--keep-alive", str(seconds))
    host, port = server.rest.rsplit(":", 1)
    content, json_length = body()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request(content, json_length, f"Content-Length: {len(content)}"))
        assert [status for status, _ in answers(connection)] == [200]
        begin = time.monotonic()
        assert connection.recv(1) == b""
        assert time.monotonic() - begin > seconds - 0.5
