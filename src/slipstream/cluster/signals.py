"""Signals as bytes on a pipe, so that one select waits for them together with everything else."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


def expect_children() -> None:
    """Let the ends of children be told to this process, whatever its parent wanted for itself.

    An ignored or blocked SIGCHLD is inherited through exec, and with it the kernel keeps no exit
    code. To be called in the main thread.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


@contextmanager
def signals_as_bytes(*numbers: signal.Signals) -> Generator[int]:
    """Yield a descriptor that delivers one byte, the number, per signal that arrives.

    A signal that is ignored stays ignored: nohup and shells' background jobs rely on it. What was
    in force before comes back at the end. To be called in the main thread.

    Args:
        numbers: the signals to deliver.
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
    """Do nothing; the interpreter has written the byte."""
