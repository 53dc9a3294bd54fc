"""Processes of elastic jobs in tests: their variables, and what they report."""

import json
from collections.abc import Sequence
from typing import Any


def slot(ports: Sequence[int], number: int, *, apart: bool = False, **more: str) -> dict[str, str]:
    """Return the variables of one process of an elastic job; `apart` is as if on another host."""
    environ = {
        "SLIPSTREAM_MEMBER_PORT": str(ports[number]),
        "SLIPSTREAM_MEMBERS": ",".join(f"127.0.0.1:{port}" for port in ports),
    }
    if apart:
        environ["SLIPSTREAM_HOST_ID"] = f"host {number}"
    return environ | more


def reports(output: str) -> list[dict[str, Any]]:
    """Return the lines of JSON in the output of a process."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
