"""Names of tensors under way: no two at a time have the same."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream import comm
from slipstream.errors import SlipstreamError
from slipstream.horovod.request import Request, TensorHandle

_FEW = 1024
_LONG_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Use:
    handle: weakref.ref[TensorHandle]
    number: int  # of the submission
    submitted: int  # ns


class NamesInUse:
    """A name is free again when this rank has seen that its tensor is done.

    It sees so by the tensor's handle. Where that was dropped, or nobody waits for it, by that of a
    later tensor, or a second after it was submitted: which of two calls in a row raises does not
    depend on how fast the network is. Safe to use from any thread.

    Args:
        clock: nanoseconds that only grow; the default is the system's monotonic clock.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the four below
        self._uses: dict[str, _Use] = {}
        self._submitted = 0
        self._last_seen = 0  # number of the last submission that somebody saw done
        self._most = _FEW
        self._dropped: deque[tuple[comm.Handle | None, Callable[[], Any]]] = deque()

    def take(self, requests: Sequence[Request]) -> list[TensorHandle]:
        """Return handles for tensors, whose names are in use from now on.

        Raises:
            ValueError: one is in use, or stands twice.
        """
        handles = [TensorHandle(each.name, self._see, self._drop) for each in requests]
        with self._lock:
            names: set[str] = set()
            for each in requests:
                if each.name in names or self._is_taken(each.name):
                    raise ValueError(
                        f"Requested to {each.title.lower()} a tensor with the same name as another"
                        f" tensor that is currently being processed: {each.name!r}. Use a different"
                        " tensor name, or wait for the other one with synchronize()."
                    )
                names.add(each.name)
            for handle in handles:
                self._submitted += 1
                self._uses[handle.name] = _Use(weakref.ref(handle), self._submitted, self._clock())
            if len(self._uses) > self._most:
                self._uses = {n: use for n, use in self._uses.items() if self._is_taken(n)}
                self._most = 2 * len(self._uses) + _FEW
        return handles

    def free(self, name: str) -> None:
        """Make a name free whose tensor was not submitted after all."""
        with self._lock:
            self._uses.pop(name, None)

    def see_all(self) -> None:
        """Note that all that was submitted so far is done."""
        with self._lock:
            self._last_seen = self._submitted

    def finish_dropped(self) -> None:
        """Finish tensors whose handles were dropped; block until they have their results."""
        while self._dropped:
            work, finish = self._dropped.popleft()
            try:
                if work is not None:
                    work.wait()
                finish()
            except SlipstreamError:  # nobody waits to hear of it
                continue

    def _see(self, handle: TensorHandle) -> None:
        with self._lock:
            use = self._uses.get(handle.name)
            if use is not None and use.handle() is handle:
                del self._uses[handle.name]
                self._last_seen = max(self._last_seen, use.number)

    def _drop(self, work: comm.Handle | None, finish: Callable[[], Any]) -> None:
        self._dropped.append((work, finish))  # it is collected in any thread, at any place

    def _is_taken(self, name: str) -> bool:
        use = self._uses.get(name)
        if use is None:
            return False
        handle = use.handle()
        if handle is not None and not handle.is_over():
            return True
        if self._last_seen >= use.number:
            return False
        return self._clock() - use.submitted < _LONG_NANOSECONDS
