"""Calls that change something outside this process, such as requests to a cloud or ssh.

Each of them stands in `with outside(name):`. A controller that dies before or after any of them
must leave nothing behind, so tests enumerate the calls and kill the process at each of them.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from slipstream.settings import stopping_call

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Counter:
    number: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> int:
        with self.lock:
            number = self.number
            self.number += 1
        return number


_counter = _Counter()


@contextmanager
def outside(call: str) -> Generator[None]:
    """Mark the calls of a `with` block as one call to the outside.

    If SLIPSTREAM_STOP_AT names the number of this call, the process kills itself before or after
    the block, without cleaning up.

    Args:
        call: Name of the call, such as "ec2.RunInstances" or "ssh mkdir"; it contains no secret.
    """
    number = _counter.next()
    _log.debug("outside call %d: %s", number, call)
    _stop_at("before", number)
    yield
    _stop_at("after", number)


def num_outside_calls() -> int:
    """Return the number of calls to the outside that this process has begun."""
    return _counter.number


def _stop_at(moment: str, number: int) -> None:
    if stopping_call() == (moment, number):
        os.kill(os.getpid(), signal.SIGKILL)
