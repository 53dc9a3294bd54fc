"""Facts about a process: without its secrets."""

import os
import time

from slipstream.flight.process import (
    memory_reading,
    shown_command,
    start_of_process,
    versions,
)
from slipstream.settings import recorded_environment


def test_values_of_secrets_are_left_out_of_commands() -> None:
    given = ["train.py", "--api-key", "abc", "--token=def", "password=ghi", "--lr", "0.1", "--key"]
    shown = ("train.py", "--api-key", "***", "--token=***", "password=***", "--lr", "0.1", "--key")
    assert shown_command(given) == shown
    assert shown_command(["/data/keys/train.py", "--epochs=3"]) == (
        "/data/keys/train.py",
        "--epochs=3",
    )


def test_only_variables_without_secrets_are_recorded() -> None:
    environ = {
        "RANK": "3",
        "SLIPSTREAM_JOB_KEY": "k" * 32,
        "SLIPSTREAM_TIMEOUT": "5",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HOME": "/root",
    }
    assert recorded_environment(environ) == {"RANK": "3", "SLIPSTREAM_TIMEOUT": "5"}


def test_the_facts_are_those_of_this_process() -> None:
    memory = memory_reading()
    assert memory.total is not None
    assert memory.resident is not None
    assert 0 < memory.resident <= (memory.peak or 0) <= memory.total
    assert 0 < start_of_process() < time.time()
    assert versions()["linux"] == os.uname().release
