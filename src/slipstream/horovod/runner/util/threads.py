"""A function that scripts and tests for Horovod import from this module."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls a function, and return the thread.

    Args:
        target: Function that the thread calls.
        args: Arguments for `target` (default: none).
        name: Name of the thread (default: chosen by Python).
        daemon: Whether the process may end while the thread still runs (default True).
        silent: Whether an exception that `target` raises is dropped (default False).

    Raises:
        ValueError: `args` is not a tuple.
    """
    if not isinstance(args, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"args must be a tuple, not {type(args)}, for a single argument use (arg,)"
        )

    def call() -> None:
        with suppress(*([Exception] if silent else [])):
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread
