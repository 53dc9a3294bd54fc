"""What scripts and tests written for Horovod import from here."""

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
    """Return a thread that was started.

    Args:
        target: Function that the thread calls.
        args: Arguments for `target`.
        name: Name of the thread.
        daemon: Whether the process may end before the thread does.
        silent: Whether an exception of `target` is dropped.

    Raises:
        ValueError: args is no tuple.
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
