"""Connections to replicas: kept open, lost before, during and after an answer, or silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("starlette")

from slipstream.serve.gateway.upstream import (
    AnswerLateError,
    ConnectionPool,
    ReplicaAddress,
    ReplicaAnswer,
    ReplicaLostError,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
REQUEST = b"GET / HTTP/1.1\r\n\r\n"
SECONDS = 30.0


def with_replica(serve: Serve, test: Callable[[ConnectionPool], Awaitable[None]]) -> None:
    """Run a test with a pool of connections to a server that is a function."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(served, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        pool = ConnectionPool(ReplicaAddress(host, port, "token"))
        try:
            await asyncio.wait_for(test(pool), SECONDS)
        finally:
            pool.close()
            server.close()
            await asyncio.sleep(0.01)

    asyncio.run(main())


async def ask(
    pool: ConnectionPool, *, seconds: float = SECONDS, has_body: bool = True
) -> ReplicaAnswer:
    deadline = asyncio.get_running_loop().time() + seconds
    connection = await pool.acquire(deadline)
    answer = await connection.exchange(REQUEST, (), deadline, has_body=has_body)
    pool.release(connection)
    return answer


def says(*texts: bytes, closes: bool = False) -> Serve:
    """Return a server that says one text after each request, on each connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for text in texts:
            if not await reader.readuntil(b"\r\n\r\n"):
                return
            for begin in range(0, len(text), 7):
                writer.write(text[begin : begin + 7])
                await writer.drain()
                await asyncio.sleep(0)
        if not closes:
            await reader.read()

    return serve


PLAIN = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


def test_answers_of_all_forms_come_over_one_connection() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    empty = b"HTTP/1.1 204 No Content\r\n\r\n"

    async def test(pool: ConnectionPool) -> None:
        first = await ask(pool)
        assert (first.status, first.fields) == (200, [(b"x-a", b"1")])
        assert b"".join(map(bytes, first.pieces)) == b"hello"
        for _ in range(2):
            assert b"".join(map(bytes, (await ask(pool)).pieces)) == b"hello"
        assert (await ask(pool)).status == 204

    with_replica(says(PLAIN, CHUNKED, interim + PLAIN, empty), test)


def test_an_answer_that_ends_its_connection_is_followed_by_a_new_one() -> None:
    async def test(pool: ConnectionPool) -> None:
        for _ in range(3):
            assert (await ask(pool)).status == 200

    with_replica(says(PLAIN.replace(b"keep-alive", b"close"), closes=True), test)


def test_an_answer_to_head_has_no_body_although_it_has_a_length() -> None:
    async def test(pool: ConnectionPool) -> None:
        answer = await ask(pool, has_body=False)
        assert (answer.status, list(answer.pieces)) == (200, [])

    with_replica(says(PLAIN[:-5]), test)


@pytest.mark.parametrize("length", [0, 10, len(PLAIN) - 1])
def test_a_connection_that_ends_before_the_whole_answer_is_lost(length: int) -> None:
    async def test(pool: ConnectionPool) -> None:
        with pytest.raises(ReplicaLostError):
            await ask(pool)

    with_replica(says(PLAIN[:length], closes=True), test)


def test_what_is_not_http_is_a_loss() -> None:
    async def test(pool: ConnectionPool) -> None:
        with pytest.raises(ReplicaLostError, match="not HTTP"):
            await ask(pool)

    with_replica(says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), test)


def test_an_answer_after_the_deadline_is_late_and_ends_its_connection() -> None:
    async def test(pool: ConnectionPool) -> None:
        with pytest.raises(AnswerLateError):
            await ask(pool, seconds=0.05)
        assert (await ask(pool)).status == 200

    with_replica(says_at_second_connection(), test)


def says_at_second_connection() -> Serve:
    """Return a server that is silent on its first connection only."""
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        if len(connections) > 1:
            await says(PLAIN)(reader, writer)
        else:
            await reader.read()

    return serve


def test_requests_under_way_are_lost_when_the_pool_closes() -> None:
    async def test(pool: ConnectionPool) -> None:
        tasks = [asyncio.create_task(ask(pool)) for _ in range(3)]
        await asyncio.sleep(0.05)
        pool.close()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, ReplicaLostError)

    with_replica(says(b""), test)


def test_a_port_without_a_listener_is_a_loss() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        server.close()
        await server.wait_closed()
        with pytest.raises(ReplicaLostError, match=f"127.0.0.1:{port} accepts no connections"):
            await ask(ConnectionPool(ReplicaAddress(host, port, "token")))

    asyncio.run(main())


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(ReplicaAddress("host", 1, "secret"))
