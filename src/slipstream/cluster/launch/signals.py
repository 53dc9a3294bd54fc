"""Signals as bytes on a pipe, so that one select() can wait for signals and for other input."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


def expect_children() -> None:
    """Make the kernel report ended children to this process, even if its parent ignored SIGCHLD.

    A program inherits from its parent whether SIGCHLD is ignored or blocked. If SIGCHLD is ignored,
    the kernel keeps no exit codes; if it is blocked, no signal arrives. Call `expect_children` in
    the main thread.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


@contextmanager
def signals_as_bytes(*numbers: signal.Signals) -> Generator[int]:
    """Yield a file descriptor that delivers one byte, the signal's number, for each signal.

    An ignored signal stays ignored, because nohup and background jobs of shells rely on it. The
    earlier signal handlers are restored when the context ends. Call `signals_as_bytes` in the main
    thread.

    Args:
        numbers: Numbers of the signals to deliver.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    earlier_wakeup = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    caught = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    earlier = {number: signal.signal(number, _deliver_only) for number in caught}
    try:
        yield readable
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(earlier_wakeup)
        os.close(readable)
        os.close(writable)


def _deliver_only(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the interpreter itself has already written the byte of the signal."""
