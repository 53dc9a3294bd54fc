"""Ranks that meet as threads: what is exchanged, and what rank 0 says of those it refuses."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from slipstream.comm.auth import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Acceptor,
    Claim,
    Connector,
)
from slipstream.comm.channel import HEAD, sealed
from slipstream.comm.reception import receive
from slipstream.comm.rendezvous import Answer, Meeting, join, pack
from slipstream.errors import AuthError, ConfigError, PeerError, PeerTimeoutError

KEY = b"a key of the job"


@pytest.fixture
def meeting() -> Meeting:
    """Return the meeting of two ranks as rank 0 sees it, at a free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    claim = Claim(rank=0, world_size=2, epoch=1)
    return Meeting(host="127.0.0.1", port=port, key=KEY, claim=claim, seconds=20.0)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Yield the threads of the other ranks."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


def of_rank(meeting: Meeting, rank: int, **claimed: int) -> Meeting:
    """Return the meeting as another rank sees it."""
    return replace(meeting, claim=replace(meeting.claim, rank=rank, **claimed))


def connected(meeting: Meeting) -> socket.socket:
    """Return a connection to rank 0, once it listens."""
    while True:
        try:
            return socket.create_connection((meeting.host, meeting.port), 20.0)
        except ConnectionRefusedError:
            continue


def proven(meeting: Meeting) -> tuple[socket.socket, Connector]:
    """Return a connection on which a rank has proved the key and sent nothing else."""
    connection = connected(meeting)
    connector = Connector(meeting.key, meeting.claim)
    connection.sendall(connector.hello)
    challenge = connection.recv(CHALLENGE_BYTES, socket.MSG_WAITALL)
    connection.sendall(connector.prove(challenge))
    return connection, connector


@pytest.mark.parametrize("size", [1, 4096])
def test_all_ranks_hear_all_addresses_in_the_order_of_ranks(
    meeting: Meeting, threads: ThreadPoolExecutor, size: int
) -> None:
    meeting = replace(meeting, claim=replace(meeting.claim, world_size=3))
    others = [threads.submit(join, of_rank(meeting, rank), bytes([rank]) * size) for rank in (2, 1)]
    addresses = [bytes([rank]) * size for rank in range(3)]
    assert receive(meeting, addresses[0]) == addresses
    assert [other.result() for other in others] == [addresses, addresses]


def test_a_name_and_ipv6_are_met_too(meeting: Meeting, threads: ThreadPoolExecutor) -> None:
    for host, place in (("localhost", "localhost:"), ("::1", "[::1]:")):
        there = replace(meeting, host=host)
        assert there.place == f"{place}{meeting.port}"
        other = threads.submit(join, of_rank(there, 1), b"one")
        assert receive(there, b"zero") == other.result() == [b"zero", b"one"]


@pytest.mark.parametrize(
    ("rank", "claimed", "message"),
    [
        (1, {"world_size": 3}, "its world has 3 ranks, that of rank 0 has 2; give all ranks"),
        (1, {"epoch": 2}, "it is in epoch 2, but rank 0 is in epoch 1, because the two have not"),
        (0, {}, r"rank 0 is there already \(rank 0\); give each process its own RANK"),
        (2, {}, r"rank 2 is there already \(rank 0\)"),
    ],
)
def test_a_rank_that_has_no_place_is_told_why(
    meeting: Meeting,
    threads: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
    rank: int,
    claimed: dict[str, int],
    message: str,
) -> None:
    zero = threads.submit(receive, meeting, b"zero")
    with pytest.raises(ConfigError, match=f"rank 0 at {meeting.place}: {message}"):
        join(of_rank(meeting, rank, **claimed), b"wrong")
    assert join(of_rank(meeting, 1), b"one") == zero.result() == [b"zero", b"one"]
    (text,) = caplog.messages
    assert re.fullmatch(
        rf"refused a connection from 127\.0\.0\.1:\d+: as rank {rank}: {message}.*", text
    )


def test_a_rank_that_comes_twice_is_told_where_the_first_one_is(
    meeting: Meeting, threads: ThreadPoolExecutor
) -> None:
    meeting = replace(meeting, claim=replace(meeting.claim, world_size=3))
    zero = threads.submit(receive, meeting, b"zero")
    connection, connector = proven(of_rank(meeting, 1))
    connection.sendall(HEAD.pack(3, connector.seals()[0].digest(b"one")) + b"one")
    assert len(connection.recv(HEAD.size + 1, socket.MSG_WAITALL)) == HEAD.size + 1
    port = connection.getsockname()[1]
    with pytest.raises(ConfigError, match=rf"rank 1 is there already \(127\.0\.0\.1:{port}\)"):
        join(of_rank(meeting, 1), b"again")
    join(of_rank(meeting, 2), b"two")
    assert zero.result()[1] == b"one"
    connection.close()


def test_who_is_missing_is_named_with_why_it_was_refused(
    meeting: Meeting, threads: ThreadPoolExecutor
) -> None:
    meeting = replace(meeting, seconds=1.0, claim=replace(meeting.claim, world_size=4))
    others: list[Future[list[bytes]]] = [
        threads.submit(join, of_rank(meeting, 1), b"one"),
        threads.submit(join, of_rank(meeting, 3, epoch=7), b"three"),
    ]
    wanted = (
        rf"^ranks 2, 3 of 4 did not come to rank 0 at {meeting.place} within 1 s; look at the"
        r" output of these processes, or raise SLIPSTREAM_CONNECT_TIMEOUT; rank 3 was refused: "
    )
    with pytest.raises(PeerTimeoutError, match=wanted):
        receive(meeting, b"zero")
    with pytest.raises(PeerTimeoutError, match=wanted):
        others[0].result()
    with pytest.raises(ConfigError, match="epoch 7"):
        others[1].result()


def test_one_that_is_missing_is_a_rank_and_not_ranks(meeting: Meeting) -> None:
    with pytest.raises(
        PeerTimeoutError, match=r"^rank 1 of 2 did not come .* within 0 s.*TIMEOUT$"
    ):
        receive(replace(meeting, seconds=0.0), b"zero")


def test_a_name_that_nobody_knows_is_named_by_rank_0_too(meeting: Meeting) -> None:
    """Rank 0 listens on all addresses, so it once said nothing about the name of the others."""
    nowhere = replace(meeting, host="no-such-host.invalid", seconds=0.2)
    with pytest.raises(
        PeerTimeoutError, match=r"MASTER_ADDR is 'no-such-host\.invalid', which this"
    ):
        receive(nowhere, b"zero")
    with pytest.raises(PeerTimeoutError, match=r"no-such-host\.invalid.* check MASTER_ADDR"):
        join(of_rank(nowhere, 1), b"one")


def test_without_rank_0_its_place_and_the_trouble_are_named(meeting: Meeting) -> None:
    wanted = (
        rf"rank 0 did not come to {meeting.place} within 0.2 s \(.*refused.*\); look at the output"
    )
    with pytest.raises(PeerTimeoutError, match=wanted):
        join(replace(of_rank(meeting, 1), seconds=0.2), b"one")


@pytest.mark.parametrize("size", [0, 4097])
def test_an_address_has_1_to_4096_bytes(
    meeting: Meeting, threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    zero = threads.submit(receive, meeting, b"zero")
    connection, connector = proven(of_rank(meeting, 1))
    address = b"x" * size
    connection.sendall(HEAD.pack(size, connector.seals()[0].digest(address)))
    assert connection.recv(1) == b""
    join(of_rank(meeting, 1), b"one")
    assert zero.result()
    assert f"it announces {size} bytes; allowed: 1 to 4096" in caplog.text
    connection.close()


@pytest.mark.parametrize(
    ("sent", "noted", "message"),
    [
        (b"two", False, "refused a connection from .*: its message was changed on the way"),
        (b"one?", True, "rank 1 left the rendezvous: it sent more than its address"),
    ],
)
def test_a_rank_sends_its_address_as_it_sealed_it_and_no_more(
    meeting: Meeting,
    threads: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    noted: bool,
    message: str,
) -> None:
    meeting = replace(meeting, claim=replace(meeting.claim, world_size=3))
    zero = threads.submit(receive, meeting, b"zero")
    connection, connector = proven(of_rank(meeting, 1))
    connection.sendall(HEAD.pack(3, connector.seals()[0].digest(b"one")) + sent)
    with connection:
        assert len(connection.recv(100, socket.MSG_WAITALL)) == (HEAD.size + 1 if noted else 0)
    others = [threads.submit(join, of_rank(meeting, rank), b"%d" % rank) for rank in (1, 2)]
    assert zero.result() == others[0].result() == others[1].result() == [b"zero", b"1", b"2"]
    (text,) = caplog.messages
    assert re.fullmatch(message, text)


def test_of_more_than_64_strangers_the_first_one_is_refused(
    meeting: Meeting, threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    zero = threads.submit(receive, meeting, b"zero")
    with ExitStack() as held:
        strangers = [held.enter_context(connected(meeting)) for _ in range(65)]
        assert strangers[0].recv(1) == b""
        strangers[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            strangers[1].recv(1)
        join(of_rank(meeting, 1), b"one")  # it is one of them at first, so another one has to go
        assert zero.result()
    assert len(caplog.messages) == 2
    for text in caplog.messages:
        assert text.endswith(": it had not proved the job key when more connections came")


def test_eight_refusals_are_logged_and_the_others_are_counted(
    meeting: Meeting, threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    zero = threads.submit(receive, meeting, b"zero")
    for _ in range(10):
        with connected(meeting) as stranger:
            stranger.sendall(b"GET / HTTP/1.1".ljust(200))
            try:
                assert stranger.recv(1) == b""
            except ConnectionResetError:
                continue
    join(of_rank(meeting, 1), b"one")
    assert zero.result()
    told = [text for text in caplog.messages if text.startswith("refused a connection from 127")]
    assert len(told) == 8
    assert all(text.endswith("it does not speak Slipstream's protocol") for text in told)
    assert caplog.messages[8:] == ["refused 2 more connections"]


def test_rank_0_that_answers_with_what_it_may_not_say_is_refused(
    meeting: Meeting, threads: ThreadPoolExecutor
) -> None:
    limit = 1 + max(4096, 2 * (4 + 4096))
    for size, error, message in (
        (0, AuthError, "it announces 0 bytes; allowed: 1 to 4097"),
        (4098, AuthError, "it announces 4098 bytes; allowed: 1 to 4097"),
        (limit + 1, AuthError, f"allowed: 1 to {limit}"),
        (None, PeerError, "left while the ranks gathered: it closed the connection"),
    ):
        with socket.create_server((meeting.host, meeting.port)) as server:
            other = threads.submit(join, of_rank(meeting, 1), b"one")
            connection = server.accept()[0]
            acceptor = Acceptor(KEY, connection.recv(HELLO_BYTES, socket.MSG_WAITALL))
            connection.sendall(acceptor.challenge)
            acceptor.verify(connection.recv(PROOF_BYTES, socket.MSG_WAITALL))
            seal = acceptor.seals()[0]
            connection.recv(HEAD.size + 3, socket.MSG_WAITALL)
            if size is None or size > 4098:
                connection.sendall(sealed(bytes([Answer.NOTED]), seal))
            if size is not None:
                connection.sendall(HEAD.pack(size, bytes(32)))
            else:
                connection.close()
            with pytest.raises(error, match=message):
                other.result()
            connection.close()


def test_a_message_is_its_length_its_digest_and_its_bytes(meeting: Meeting) -> None:
    assert pack([b"ab", b"", b"c"]) == b"\0\0\0\2ab\0\0\0\0\0\0\0\1c"
    assert [each.value for each in Answer] == [1, 2, 3, 4]
    assert meeting.place == f"127.0.0.1:{meeting.port}"
