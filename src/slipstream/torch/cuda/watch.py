"""A thread that notices when a group of the engine has failed.

A rank that waits for NCCL has no operation of the engine in flight that could fail. So a thread
looks at the groups, and ends the wait when a rank is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from slipstream import _core

POLL_SECONDS = 0.25  # between two looks, each of some microseconds; chosen by hand, not measured

_log = logging.getLogger(__name__)


class FailureWatch:
    """Thread that calls a function once if a group of the engine fails.

    Before, it aborts the other groups, so that their members also learn of the failure.

    Args:
        groups: Groups of the engine.
        on_failure: Function that the thread calls after a failure.
    """

    def __init__(self, groups: Sequence[_core.Group], on_failure: Callable[[], None]) -> None:
        self._groups, self._on_failure = groups, on_failure
        self._closing = threading.Event()
        self._error: Exception | None = None
        # A daemon, so that a script that never destroys its group can end.
        self._thread = threading.Thread(target=self._look, name="slipstream-watch", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether the thread has noticed a failure."""
        return self._error is not None

    def check(self) -> None:
        """Raise the error of the group that has failed; does not block.

        Raises:
            PeerError: A rank is gone, or a group was aborted.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)

    def close(self) -> None:
        """End the thread; a later failure has no effect."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _look(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            try:
                for group in self._groups:
                    group.check()
            except Exception as error:  # noqa: BLE001  kept for `check`
                self._error = error
                self._end(error)
                return

    def _end(self, error: Exception) -> None:
        try:
            for group in self._groups:
                group.abort(f"another group of its ranks has failed: {error}")
        finally:
            try:
                self._on_failure()
            except Exception:  # noqa: BLE001  a thread can only log it
                _log.exception("collectives within the host could not be aborted")
