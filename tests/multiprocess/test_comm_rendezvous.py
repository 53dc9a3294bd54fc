"""How ranks meet, who is missing, and what a stranger at the door can do: nothing."""

import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from slipstream.comm.auth import CHALLENGE_BYTES, Claim, Connector
from slipstream.errors import AuthError

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]
SHORT = {"SLIPSTREAM_CONNECT_TIMEOUT": "3"}


@contextmanager
def knock(port: int, host: str = "127.0.0.1", seconds: float = 30.0) -> Iterator[socket.socket]:
    """Connect, as soon as somebody listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection((host, port), 10)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens at {port}"
            time.sleep(0.01)
    with connection:
        yield connection


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other end has closed it; whatever it sent before is read."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def read(connection: socket.socket, size: int) -> bytes:
    return connection.recv(size, socket.MSG_WAITALL)


def test_those_who_came_hear_who_did_not(start: Start) -> None:
    job = start(5, "scenario.py", "meeting", environ=SHORT, absent=(2, 4))
    for output in job.finish():
        assert "PeerTimeoutError: ranks 2, 4 of 5 did not come to rank 0" in output
        assert "SLIPSTREAM_CONNECT_TIMEOUT" in output


@pytest.mark.slow("ranks that do not meet")
def test_without_rank_0_the_others_say_so(start: Start) -> None:
    job = start(3, "scenario.py", "meeting", environ=SHORT, absent=(0,))
    for output in job.finish():
        assert f"PeerTimeoutError: rank 0 did not come to 127.0.0.1:{job.port + 1}" in output
        assert "Connection refused" in output


def test_rank_0_that_dies_meanwhile_is_noticed_at_once(start: Start) -> None:
    job = start(3, "scenario.py", "meeting", absent=(2,))
    with knock(job.port + 1):  # it listens
        pass
    rank_0 = psutil.Process(job.ranks[0].process.pid)
    deadline = time.monotonic() + 30
    while len(established(rank_0, job.port + 1)) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.ranks[0].signal(signal.SIGKILL)
    output = job.ranks[1].finish()
    assert "rank 0" in output
    assert "Error: " in output


def established(process: psutil.Process, port: int) -> list[Any]:
    """Return the connections at a listening port of a process."""
    return [
        each
        for each in process.net_connections("tcp")
        if each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port
    ]


def test_a_job_without_a_key_says_what_to_do(start: Start) -> None:
    for output in start(2, "scenario.py", "meeting", environ={"SLIPSTREAM_JOB_KEY": ""}).finish():
        assert "ConfigError: rank" in output
        assert "slipstream run" in output
        assert "SLIPSTREAM_KEY_FILE" in output


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SLIPSTREAM_SEGMENT_BYTES", "65536"),
        ("SLIPSTREAM_EAGER_BYTES", "4096"),
        ("SLIPSTREAM_ALGORITHM", "ring"),
        ("SLIPSTREAM_TLS", "1"),
    ],
)
def test_settings_that_must_be_alike_are_compared(start: Start, variable: str, value: str) -> None:
    outputs = start(2, "scenario.py", "meeting", of_rank={1: {variable: value}}).finish()
    for rank, output in enumerate(outputs):
        line = next(line for line in output.splitlines() if "ConfigError: rank " in line)
        assert f"ConfigError: rank {rank} has {variable}=" in line
        assert f"{variable}={value}" in line
        assert f"rank {1 - rank} on host {socket.gethostname()} has {variable}=" in line
        assert "set these variables alike on all ranks" in line
        assert line.count("SLIPSTREAM_") == 2, "settings that are equal are not listed"


def test_a_world_of_one_needs_no_key_no_port_and_no_launcher(start: Start) -> None:
    nothing = dict.fromkeys(
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLIPSTREAM_JOB_KEY"), ""
    )
    (output,) = start(1, "scenario.py", "meeting", environ=nothing).finish()
    assert "met: 1 ranks" in output


@pytest.mark.slow("ranks that do not meet")
def test_a_rank_with_another_key_is_told_so_and_the_others_that_it_is_missing(start: Start) -> None:
    other = {1: {"SLIPSTREAM_JOB_KEY": secrets.token_hex(16)}}
    job = start(3, "scenario.py", "meeting", environ=SHORT, of_rank=other)
    first, second, third = job.finish()
    assert "AuthError: rank 0 at 127.0.0.1" in second
    assert "another job key" in second
    for output in (first, third):
        assert "PeerTimeoutError: rank 1 of 3 did not come" in output
    assert "WARNING slipstream.comm.reception refused a connection from 127.0.0.1:" in first


@pytest.mark.slow("ranks that do not meet")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"WORLD_SIZE": "4"}, "its world has 4 ranks, that of rank 0 has 3"),
        ({"RANK": "1"}, "rank 1 is there already (127.0.0.1:"),
    ],
)
def test_a_rank_that_rank_0_cannot_place_is_told_why(
    start: Start, wrong: dict[str, str], text: str
) -> None:
    job = start(3, "scenario.py", "meeting", environ=SHORT, of_rank={2: wrong})
    outputs = job.finish()
    assert any(
        f"ConfigError: rank 0 at 127.0.0.1:{job.port + 1}: {text}" in each for each in outputs
    )
    assert "PeerTimeoutError: rank 2 of 3 did not come" in outputs[0]


@pytest.mark.parametrize("address", ["::1", "localhost"])
def test_ranks_meet_by_ipv6_and_by_name(start: Start, address: str) -> None:
    hosts = {rank: {"SLIPSTREAM_HOST_ID": f"host {rank}"} for rank in range(3)}
    job = start(3, "scenario.py", "meeting", environ={"MASTER_ADDR": address}, of_rank=hosts)
    for output in job.finish():
        assert "met: 3 ranks" in output


def test_a_port_that_is_in_use_is_named(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        environ = {"SLIPSTREAM_PORT": str(port), **SHORT}
        (output,) = start(2, "scenario.py", "meeting", environ=environ, absent=(1,)).finish()
    assert f"ConfigError: port {port} of rank 0's host is in use" in output


@pytest.fixture
def few_ports() -> Iterator[tuple[str, ...]]:
    """Yield the prefix of commands in a network where connections start from ports 20000-20007."""
    name = f"few-ports-{secrets.token_hex(4)}"
    inside = ("ip", "netns", "exec", name)
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        allowed = "net.ipv4.ip_local_port_range=20000 20007"
        subprocess.run([*inside, "sysctl", "-qw", allowed], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.netns
def test_a_rank_that_knocks_early_does_not_take_rank_0s_port(
    start: Start, few_ports: tuple[str, ...]
) -> None:
    port = {"SLIPSTREAM_PORT": "20004"}
    job = start(2, "scenario.py", "meeting_late", environ=port, prefix=few_ports)
    for output in job.finish():
        assert "met: 2 ranks" in output


def test_strangers_at_the_rendezvous_do_no_harm(start: Start) -> None:
    job = start(2, "scenario.py", "meeting", absent=(1,))
    port = job.port + 1
    with knock(port) as silent, knock(port) as talker, knock(port) as liar, knock(port) as slow:
        talker.sendall(b"GET / HTTP/1.1\r\nHost: example\r\n" + b"x" * 100_000)
        assert is_closed(talker)
        # It claims rank 1 without the key, and answers the challenge with nonsense.
        claim = Claim(rank=1, world_size=2, epoch=1)
        connector = Connector(secrets.token_bytes(32), claim)
        liar.sendall(connector.hello)
        challenge = read(liar, CHALLENGE_BYTES)
        with pytest.raises(AuthError):
            connector.prove(challenge)
        liar.sendall(secrets.token_bytes(32) + b"\x00\x00\x00\x05" + bytes(37))
        assert is_closed(liar)
        slow.sendall(connector.hello[:1])
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        late = start_late(start, job)
        assert "met: 2 ranks" in job.ranks[0].finish()
        assert "met: 2 ranks" in late.ranks[0].finish()
        assert is_closed(silent)
        for connection in crowd:
            connection.close()
    output = job.ranks[0].output
    assert "it does not speak Slipstream's protocol" in output
    assert "it could not prove the job key" in output
    assert output.count("refused a connection") == 8  # the others are counted
    assert "more connections" in output


def start_late(start: Start, job: Any) -> Any:
    """Start rank 1 of the job."""
    environ = {"MASTER_PORT": str(job.port), "SLIPSTREAM_JOB_KEY": job.key}
    return start(2, "scenario.py", "meeting", environ=environ, absent=(0,))


def test_a_recorded_conversation_cannot_be_played_again(start: Start) -> None:
    job = start(2, "scenario.py", "meeting", absent=(1,))
    key, claim = job.key.encode(), Claim(rank=1, world_size=2, epoch=1)
    connector = Connector(key, claim)
    with knock(job.port + 1) as first:
        first.sendall(connector.hello)
        proof = connector.prove(read(first, CHALLENGE_BYTES))
    with knock(job.port + 1) as again:
        again.sendall(connector.hello)
        assert len(read(again, CHALLENGE_BYTES)) == CHALLENGE_BYTES
        again.sendall(proof)
        assert is_closed(again)
    late = start_late(start, job)
    assert "met: 2 ranks" in job.ranks[0].finish()
    assert "met: 2 ranks" in late.ranks[0].finish()
    assert "it could not prove the job key" in job.ranks[0].output


def test_strangers_at_the_engines_port_do_no_harm(start: Start) -> None:
    hosts = {rank: {"SLIPSTREAM_HOST_ID": f"host {rank}"} for rank in range(2)}
    job = start(2, "scenario.py", "lingering", of_rank=hosts)
    for rank in job.ranks:
        rank.wait_for("ready")
    listening = {
        (each.laddr.port, each.laddr.ip)
        for rank in job.ranks
        for each in psutil.Process(rank.process.pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }
    assert listening, "the engines listen"
    for port, host in listening:
        with knock(port, host), knock(port, host) as talker:
            talker.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 100_000)
            assert is_closed(talker)
    job.ranks[0].signal(signal.SIGUSR1)
    outputs = job.finish()
    for output in outputs:
        assert "2 ranks still" in output
    assert any("WARNING slipstream.engine" in output for output in outputs)
