"""Wrong usage is answered with the value that was received, and with what is allowed."""

from __future__ import annotations

import re

import pytest
from cli import WRONG_USAGE, in_process, usage_error


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run -n 0 x.py", "'-n' / .*: '0'; allowed: at least 1"),
        ("run -n two x.py", "'-n' / .*: 'two'; allowed: a whole number"),
        ("run --show foo x.py", "'--show': 'foo' is not one of 'all', 'rank0', 'failed'"),
        ("serve m.slip --port 70000", "'--port': '70000'; allowed: at most 65535"),
        ("forecast m --batch 1 --epochs x", "'--epochs': 'x'; allowed: a number"),
        ("bogus", "No such command 'bogus'; allowed: tour, doctor, forecast"),
        ("bench bogus", "No such command 'bogus'; allowed: comm, train"),
    ],
)
def test_a_wrong_value_is_named_with_the_allowed_ones(command: str, words: str) -> None:
    done = in_process(*command.split())
    assert done.code == WRONG_USAGE
    assert re.search(words, done.stderr), done.stderr


def test_the_implicit_sub_command_is_not_named() -> None:
    done = in_process("forecast", "resnet50")
    assert done.stderr.startswith("Usage: slipstream forecast [OPTIONS] MODEL\n")
    assert "Try 'slipstream forecast -h' for help." in done.stderr


def test_a_command_without_arguments_is_answered_with_its_help() -> None:
    done = in_process("forecast")
    assert done.code == WRONG_USAGE
    assert "Examples" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("compile", "MODEL is missing; allowed: a file, package.module:function"),
        ("compile none.onnx", "none.onnx: cannot be read as an ONNX model: No such file"),
        ("run -n 1 --json --tty x.py", "both --tty and --json are given; allowed: one of them"),
        ("run -n 1 --env =3 x.py", "--env is '=3'; allowed: NAME or NAME=VALUE"),
        ("run --hostfile none x.py", "the hostfile none cannot be read: No such file"),
        ("bench comm --local 2 --rate 1g", "--local measures this machine without a lab"),
        ("bench comm --local 2 --sizes ,", "sizes is empty; allowed: one or more sizes"),
        ("bench plugin --streams 65", "the number of connections is 65; allowed: 1 to 64"),
        ("bench plugin --sockets 8", "sockets lacks 1, with which all others are compared"),
        ("bench plugin --local --rate 1gbit", "--local measures this machine without a lab"),
        ("bench negotiate --ranks 1", "ranks is '1'; allowed: one or more numbers from 2"),
        ("forecast resnet50 --batch 1 --hardware none", "none does not exist; allowed: a .toml"),
        ("forecast validate none.csv", "none.csv cannot be read as CSV: No such file"),
        ("forecast resnet50 --batch 1 --own 8xA100 --max-hosts 2", "own is '8xA100' and max_hosts"),
    ],
)
def test_options_that_contradict_or_lead_nowhere_are_refused(command: str, words: str) -> None:
    assert usage_error(*command.split()).startswith(words)
