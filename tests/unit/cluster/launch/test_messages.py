"""One line per message, between the launcher and an agent."""

import json

import pytest

from slipstream.cluster.launch.messages import (
    PROTOCOL,
    End,
    EndSlot,
    Exited,
    FlightFile,
    Hello,
    Joined,
    Kill,
    Message,
    Noticed,
    NotStarted,
    Output,
    Refused,
    Reserve,
    Signal,
    Start,
    Started,
    decode,
    encode,
)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            Hello(protocol=PROTOCOL, num_cores=4, free_port=20000),
            ["Hello", {"protocol": PROTOCOL, "num_cores": 4, "free_port": 20000}],
        ),
        (Refused(reason="none"), ["Refused", {"reason": "none"}]),
        (Started(local_rank=1, pid=7), ["Started", {"local_rank": 1, "pid": 7}]),
        (
            Noticed(local_rank=1, state="stopped"),
            ["Noticed", {"local_rank": 1, "state": "stopped", "oom_kills": None}],
        ),
        (FlightFile(name="a", text="b"), ["FlightFile", {"name": "a", "text": "b"}]),
        (
            Output(local_rank=1, is_error=True, data="\xff\n"),
            ["Output", {"local_rank": 1, "is_error": True, "data": "\xff\n"}],
        ),
        (Exited(local_rank=1, status=-9), ["Exited", {"local_rank": 1, "status": -9}]),
        (Signal(number=2), ["Signal", {"number": 2}]),
        (End(), ["End", {}]),
        (Kill(), ["Kill", {}]),
        (Reserve(num_ports=2), ["Reserve", {"num_ports": 2}]),
        (EndSlot(local_rank=1), ["EndSlot", {"local_rank": 1}]),
        (Joined(local_rank=1, epoch=2), ["Joined", {"local_rank": 1, "epoch": 2}]),
        (
            NotStarted(local_rank=1, reason="none"),
            ["NotStarted", {"local_rank": 1, "reason": "none"}],
        ),
    ],
)
def test_a_message_is_a_line_of_its_name_and_its_fields(message: Message, line: object) -> None:
    encoded = encode(message)
    assert encoded.endswith(b"\n")
    assert encoded.count(b"\n") == 1
    assert json.loads(encoded) == line
    assert decode(encoded) == message


def test_a_start_without_terminal_has_none() -> None:
    start = Start(argv=("a",), cwd="/", environ={}, ranks=({},), grace_seconds=3.0)
    assert json.loads(encode(start))[1] == {
        "argv": ["a"],
        "cwd": "/",
        "environ": {},
        "ranks": [{}],
        "grace_seconds": 3.0,
        "terminal": [],
        "nccl_plugin": False,
        "flight_folder": "",
    }


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Welcome!",
        b"1",
        b"[]",
        b'["End"]',
        b'["End", 1]',
        b'["End", {"x": 1}]',
        b"null",
        b'["Gone", {}]',
        b'["Signal", {}]',
        b"\xff",
        b'["End", {}, 1]',
    ],
)
def test_what_a_login_shell_prints_is_no_message(line: bytes) -> None:
    assert decode(line) is None
