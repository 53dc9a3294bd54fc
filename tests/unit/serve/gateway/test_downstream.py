"""Connections of clients: requests in all pieces and forms, and those that are refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("starlette")

from slipstream.serve.gateway.downstream import (
    ClientConnection,
    ClientRequest,
    Reception,
    json_answer,
)
from slipstream.serve.gateway.upstream import ReplicaAnswer
from slipstream.serve.protocol.bodies import BodyMemory
from slipstream.serve.refusals import Reason, RequestRefusedError

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Reception], Awaitable[None]]


def talk(conversation: Talk, *, delay: float = 0.0) -> None:
    """Let a client talk to a server that answers with what it was asked; 100 bytes are allowed."""

    def admit(request: ClientRequest) -> None:
        if request.target == b"/secret":
            raise RequestRefusedError(Reason.UNAUTHENTICATED, "a token is needed")

    async def respond(request: ClientRequest) -> ReplicaAnswer:
        await asyncio.sleep(delay)
        body = b"".join(map(bytes, request.body))
        return ReplicaAnswer(200, [(b"x-method", request.method)], [request.target, b" ", body])

    async def main() -> None:
        reception = Reception(admit, respond, BodyMemory(100, 150))
        server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(reception), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.wait_for(conversation(reader, writer, reception), 30)
        writer.close()
        await writer.wait_closed()
        while reception.connections:
            await asyncio.sleep(0)
        assert reception.bodies.num_bytes == 0
        server.close()

    asyncio.run(main())


async def answer(reader: asyncio.StreamReader, *, is_head: bool = False) -> tuple[int, str, bytes]:
    """Return status, header and body of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next((line for line in head.split("\r\n") if line.startswith("content-length")), ":0")
    body = b"" if is_head else await reader.readexactly(int(length.partition(":")[2]))
    return int(head.split()[1]), head, body


REQUESTS = {
    "no body": (b"GET /a?b=1 HTTP/1.1\r\nHost: h\r\n\r\n", b"/a?b=1 "),
    "a body": (b"POST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"/p hello"),
    "an empty body": (b"POST /p HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"/p "),
    "an upgrade": (
        b"POST /u HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
        b"/u hi",
    ),
}
CHUNKED = (
    b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=1\r\nllo\r\n0\r\n\r\n"
)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_requests_arrive_in_pieces_on_one_connection(name: str, size: int) -> None:
    request, expected = REQUESTS[name]

    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Reception
    ) -> None:
        for _ in range(3):
            for begin in range(0, len(request), size):
                writer.write(request[begin : begin + size])
                await writer.drain()
                await asyncio.sleep(0)
            status, head, body = await answer(reader)
            assert (status, body) == (200, expected)
            assert "connection: close" not in head

    talk(conversation)


@pytest.mark.parametrize("size", [1, 1000])
def test_a_chunked_body_is_whole_and_ends_the_connection(size: int) -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Reception
    ) -> None:
        for begin in range(0, len(CHUNKED), size):
            writer.write(CHUNKED[begin : begin + size])
            await asyncio.sleep(0)
        status, head, body = await answer(reader)
        assert (status, body) == (200, b"/c hello")
        assert "connection: close" in head
        assert await reader.read() == b""

    talk(conversation)


@pytest.mark.parametrize("delay", [0.0, 0.01])
def test_requests_that_do_not_wait_for_answers_are_answered_in_order(delay: float) -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Reception
    ) -> None:
        writer.write(b"".join(request for request, _ in REQUESTS.values()) * 3)
        for _ in range(3):
            for _, expected in REQUESTS.values():
                assert (await answer(reader))[2] == expected

    talk(conversation, delay=delay)


def test_head_gets_a_header_only() -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Reception
    ) -> None:
        writer.write(b"HEAD /h HTTP/1.1\r\n\r\nGET /g HTTP/1.1\r\n\r\n")
        assert "x-method: HEAD" in (await answer(reader, is_head=True))[1]
        assert (await answer(reader))[2] == b"/g "

    talk(conversation)


@pytest.mark.parametrize(
    ("begin", "status", "words"),
    [
        (b"POST /p HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413, b"at most 100 are allowed"),
        (CHUNKED[:48] + b"65\r\n" + b"x" * 101, 413, b"at most 100 are allowed"),
        (b"GET /secret HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 401, b"a token is needed"),
        (b"no HTTP at all\r\n\r\n", 400, b"not HTTP"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, 400, b"more than 64 KiB"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            b"not HTTP",
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400, b"HTTP"),
    ],
)
def test_what_is_not_allowed_is_refused_before_its_body_is_read(
    begin: bytes, status: int, words: bytes
) -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Reception
    ) -> None:
        writer.write(begin)
        got, head, body = await answer(reader)
        assert got == status
        assert words in body
        assert "connection: close" in head
        assert ("www-authenticate: Bearer" in head) == (status == 401)
        writer.write(b"x" * 1_000_000)  # is dropped, and does not reset the connection
        writer.write_eof()
        assert await reader.read() == b""

    talk(conversation)


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Reception
    ) -> None:
        writer.write(b"POST /p HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert (await answer(reader))[2] == b"/p hi"

    talk(conversation)


def test_all_bodies_together_are_limited() -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reception: Reception
    ) -> None:
        address = writer.get_extra_info("peername")
        other_reader, other = await asyncio.open_connection(*address)
        other.write(b"POST /p HTTP/1.1\r\nContent-Length: 90\r\n\r\n")
        while reception.bodies.num_bytes < 90:
            await asyncio.sleep(0)
        writer.write(b"POST /p HTTP/1.1\r\nContent-Length: 90\r\n\r\n")
        status, head, _ = await answer(reader)
        assert status == 429
        assert "retry-after: 1" in head
        other.write(b"y" * 90)
        assert (await answer(other_reader))[2] == b"/p " + b"y" * 90
        other.close()

    talk(conversation)


def test_the_work_for_a_client_that_hangs_up_is_cancelled() -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reception: Reception
    ) -> None:
        writer.write(REQUESTS["a body"][0])
        while reception.bodies.num_bytes == 0:
            await asyncio.sleep(0)
        writer.close()

    talk(conversation, delay=1000.0)


def test_connections_that_send_nothing_end() -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reception: Reception
    ) -> None:
        writer.write(REQUESTS["a body"][0] + b"POST /slow")
        await answer(reader)
        while not any(each.is_receiving for each in reception.connections):
            await asyncio.sleep(0)
        reception.sweep(idle_seconds=0.0, body_seconds=100.0)
        assert not reader.at_eof()
        reception.sweep(idle_seconds=100.0, body_seconds=0.0)
        assert await reader.read() == b""

    talk(conversation)


def test_an_ending_server_says_so_in_its_last_answers() -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reception: Reception
    ) -> None:
        reception.is_ending = True
        writer.write(REQUESTS["a body"][0])
        assert "connection: close" in (await answer(reader))[1]
        assert await reader.read() == b""

    talk(conversation)


def test_changed_requests_break_nothing() -> None:
    draw = random.Random(7)

    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reception: Reception
    ) -> None:
        address = writer.get_extra_info("peername")
        for _ in range(300):
            request = bytearray(draw.choice([CHUNKED, *(each for each, _ in REQUESTS.values())]))
            for _ in range(draw.randint(1, 4)):
                request[draw.randrange(len(request))] = draw.randrange(256)
            other_reader, other = await asyncio.open_connection(*address)
            other.write(bytes(request))
            other.write_eof()
            said = await other_reader.read()
            assert not said or said.startswith(b"HTTP/1.1 ")
            other.close()
        writer.write(REQUESTS["a body"][0])
        assert (await answer(reader))[2] == b"/p hello"

    talk(conversation)


def test_json_has_its_type() -> None:
    assert json_answer(200, {"a": 1}) == ReplicaAnswer(
        200, [(b"content-type", b"application/json")], [b'{"a":1}']
    )
