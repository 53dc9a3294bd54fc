"""Waiting for a cloud: how often it is asked again, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from slipstream.errors import QuotaError

T = TypeVar("T")


class BusyError(QuotaError):
    """Ask again: another resource uses this one, or the cloud still works on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The times of waiting for a cloud.

    Args:
        poll_seconds: Time between two questions (default 2).
        settle_seconds: Time after which lists of the cloud contain all that an earlier process
            created (default 15).
        limit_seconds: Longest wait for one condition, such as machines that start (default 600).
    """

    poll_seconds: float = 2.0
    settle_seconds: float = 15.0
    limit_seconds: float = 600.0

    def until(self, check: Callable[[], T | None], awaited: str) -> T:
        """Return the first result of a check that is neither None nor False.

        Args:
            check: Function that asks the cloud once.
            awaited: Condition in words, for the error.

        Raises:
            BusyError: the condition did not hold within `limit_seconds`.
        """
        deadline = time.monotonic() + self.limit_seconds
        while True:
            result = check()
            if result is not None and result is not False:
                return result
            if time.monotonic() >= deadline:
                raise BusyError(
                    f"after {self.limit_seconds:g} s it is still not true that {awaited}; call"
                    " again to go on from here, or delete the cluster"
                )
            time.sleep(self.poll_seconds)

    def retried(self, call: Callable[[], T]) -> T:
        """Return the result of a call, which is repeated while it raises BusyError.

        Raises:
            BusyError: the call still raised it after `limit_seconds`.
        """
        deadline = time.monotonic() + self.limit_seconds
        while True:
            try:
                return call()
            except BusyError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(self.poll_seconds)

    def settled(self, look: Callable[[], T]) -> T:
        """Return what a look finds, at the latest after `settle_seconds`."""
        deadline = time.monotonic() + self.settle_seconds
        while True:
            found = look()
            if found or time.monotonic() >= deadline:
                return found
            time.sleep(self.poll_seconds)
