"""The fake of Alibaba Cloud in a process of its own, and the calls that steer it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import wait_until

from slipstream.cluster.launch.ports import find_free_port_pair

FAKE = Path(__file__).with_name("fake_aliyun.py")


@contextmanager
def aliyun_server() -> Iterator[str]:
    """Start the fake; yield its address."""
    port = find_free_port_pair()
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([sys.executable, FAKE, str(port), "127.0.0.1"]) as server:
        try:
            wait_until(lambda: _answers(url))
            yield url
        finally:
            server.kill()


def aliyun_environment(url: str) -> dict[str, str]:
    """Return the variables with which our client calls the fake."""
    from fake_aliyun import KEY_ID, KEY_SECRET

    return {
        "ALIYUN_ENDPOINT": url,
        "ALIYUN_ACCESS_KEY_ID": KEY_ID,
        "ALIYUN_ACCESS_KEY_SECRET": KEY_SECRET,
        "ALIYUN_DEFAULT_REGION": "cn-test",
    }


def steer(url: str, path: str, **value: Any) -> Any:
    """Send a request of a test to the fake, such as "fault"; return the answer."""
    body = json.dumps(value).encode()
    with urllib.request.urlopen(f"{url}/{path}", body, timeout=60) as response:
        return json.load(response)


def _answers(url: str) -> bool:
    try:
        steer(url, "requests")
    except OSError:
        return False
    return True
