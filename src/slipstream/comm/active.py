"""The engines of this process that are open, whoever made them: `comm.init()` or an adapter.

The one registry of the process, at its edge: stats, the timeline and the engine's log are for
people who look at the process as a whole.
"""

from __future__ import annotations

import logging
import threading

from slipstream import _core

_LOG_SECONDS = 1.0

_log = logging.getLogger("slipstream.engine")
_lock = threading.Lock()
_open: list[OpenEngine] = []


class OpenEngine:
    """An engine with the thread that passes its log on to Python's.

    Args:
        runtime: connected.
        rank: of this process in it.
    """

    def __init__(self, runtime: _core.Runtime, rank: int) -> None:
        self.runtime = runtime
        self.rank = rank
        self._closed = False
        self._thread = threading.Thread(target=self._pass_on, name="slipstream-log", daemon=True)
        self._thread.start()
        with _lock:
            _open.append(self)

    def close(self) -> None:
        """Close the engine, and pass on what it has said until then. Idempotent."""
        with _lock:
            if self in _open:
                _open.remove(self)
        self.runtime.close()
        self._closed = True
        self._thread.join()

    def _pass_on(self) -> None:
        while True:
            record = self.runtime.next_log(_LOG_SECONDS)
            if record is not None:
                _log.log(record[0], "rank %d: %s", self.rank, record[1])
            elif self._closed:
                return


def open_engines() -> list[OpenEngine]:
    """Return the engines of this process that are open."""
    with _lock:
        return list(_open)
