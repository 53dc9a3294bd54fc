"""A lock that other processes of this machine respect, and that ends with its process."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock during a `with` block; blocks while another process holds it.

    Args:
        path: File of the lock, which is made if it is missing.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
