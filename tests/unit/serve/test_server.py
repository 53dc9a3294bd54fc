"""What a server does if nothing is said, as the documentation has it."""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("starlette")

from slipstream.errors import UsageError
from slipstream.serve.access import Tokens
from slipstream.serve.server import ServeOptions


def test_a_server_is_for_this_machine_and_has_bounds():
    found = dataclasses.asdict(ServeOptions(models=()))
    assert found == {
        "models": (), "host": "127.0.0.1", "port": 8000, "grpc_port": 8001, "replicas": 1,
        "devices": ("auto",),
        "threads": None, "seconds": 10.0, "delay": 0.002, "waiting": 1024, "most_rows": 64,
        "body": 64 * 1024**2, "bodies": 512 * 1024**2, "watch": 1.0,
        "tokens": dataclasses.asdict(Tokens()), "tls": None, "access_log": None, "drain": 30.0,
        "keep_alive": 75, "notice": None,
    }  # fmt: skip


@pytest.mark.parametrize("devices", [(), ("gpu",), ("cuda:0", "tpu")])
def test_devices_are_known(devices):
    with pytest.raises(UsageError, match=r"devices? is .*allowed: "):
        ServeOptions(models=(), devices=devices)
