"""Progress on stderr for commands that take minutes, and clean-up when a signal ends a command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from slipstream.cli.output import stderr_console


@contextmanager
def ending_on_signals() -> Generator[None]:
    """Make SIGTERM and SIGHUP end this process like Ctrl-C, so that `with` blocks clean up."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


@contextmanager
def status_line(first: str = "the ranks start") -> Generator[Callable[[str], None]]:
    """Yield a function that shows the current action on a terminal, as in `ending_on_signals`."""
    with ending_on_signals(), stderr_console().status(first) as status:
        yield status.update
