"""Waiting for what another process does."""

import time
from collections.abc import Callable

LIMIT_SECONDS = 60.0  # far more than anything takes, on a machine that does other things too


def wait_until(condition: Callable[[], object], seconds: float = LIMIT_SECONDS) -> None:
    """Return as soon as the condition holds; fail when it does not within the seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still false after {seconds} s"
        time.sleep(0.02)
