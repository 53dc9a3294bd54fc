"""Names of tensors: unnamed tensors are numbered, and no two tensors in flight share a name."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.request import Request, TensorHandle, Waitable

OPTIMIZER = "optimizer"  # kind under which the parameters of optimizers are numbered

# Number of remembered names above which free names are forgotten. Chosen by hand, not measured.
_FEW_NAMES = 1024
# Age at which a tensor frees its name even if no caller has seen that it is done. Chosen by hand,
# not measured: longer than an operation, so that errors do not depend on the speed of the network.
_LONG_NANOSECONDS = 1_000_000_000

_unnamed: Counter[tuple[str, int | None]] = Counter()  # by kind and number of the process set


def full_name(kind: str, name: str | None, process_set: ProcessSet) -> str:
    """Return the name by which all ranks know a tensor; unnamed tensors get a number."""
    if name is not None:
        return f"{kind}.{name}"
    counted = kind, process_set.process_set_id
    _unnamed[counted] += 1
    return f"{kind}.noname.{_unnamed[counted]}"


def forget_names(process_set: ProcessSet | None = None) -> None:
    """Restart the numbering of unnamed tensors at 1; all ranks must do so at the same point.

    Args:
        process_set: Process set in which unnamed tensors are numbered from 1 again. The numbers of
            its optimizers are kept. With None (the default), the numbering restarts in all process
            sets, for optimizers too.
    """
    if process_set is None:
        _unnamed.clear()
        return
    for kind, number in list(_unnamed):
        if number == process_set.process_set_id and kind != OPTIMIZER:
            del _unnamed[kind, number]


@dataclass(frozen=True, slots=True)
class _Use:
    handle: weakref.ref[TensorHandle]
    number: int  # position in the order of submissions
    submitted: int  # time in ns


class NamesInUse:
    """Names of tensors that must not be submitted again yet. Any thread may use the object.

    A name becomes free when a caller on this rank learns from the tensor's handle that the tensor
    is done. But callers may drop a handle, or never ask it. So if a tensor is done or its handle
    was dropped, its name also becomes free when a caller learns that a later tensor is done, or one
    second after the submission. These rules do not depend on the speed of the network, which
    therefore does not decide whether a second call with the same name raises an error.

    Args:
        clock: Function that returns a time in nanoseconds; the time must never decrease (default:
            the system's monotonic clock).
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the four attributes below
        self._uses: dict[str, _Use] = {}
        self._submitted = 0
        self._last_seen = 0  # number of the latest submission that a caller saw done
        self._max_uses = _FEW_NAMES
        self._dropped: deque[tuple[Waitable | None, Callable[[], Any]]] = deque()

    def take(self, requests: Sequence[Request]) -> list[TensorHandle]:
        """Mark the names of requests as in use, and return a handle for each request.

        Raises:
            ValueError: A name is in use, or two requests have the same name.
        """
        handles = [TensorHandle(request.name, self._see, self._drop) for request in requests]
        with self._lock:
            names: set[str] = set()
            for request in requests:
                name = request.name
                if name in names or self._is_taken(name):
                    raise ValueError(
                        f"Requested to {request.title.lower()} a tensor with the same name as"
                        f" another tensor that is currently being processed: {name!r}. Use a"
                        " different tensor name, or wait for the other one with synchronize()."
                    )
                names.add(name)
            for handle in handles:
                self._submitted += 1
                self._uses[handle.name] = _Use(weakref.ref(handle), self._submitted, self._clock())
            if len(self._uses) > self._max_uses:
                self._uses = {n: use for n, use in self._uses.items() if self._is_taken(n)}
                self._max_uses = 2 * len(self._uses) + _FEW_NAMES
        return handles

    def free(self, name: str) -> None:
        """Free the name of a tensor that was not submitted after all."""
        with self._lock:
            self._uses.pop(name, None)

    def see_all(self) -> None:
        """Treat all tensors submitted so far as if a caller had seen that they are done."""
        with self._lock:
            self._last_seen = self._submitted

    def finish_dropped(self) -> None:
        """Block until the tensors with dropped handles are done, and complete their results."""
        while self._dropped:
            work, finish = self._dropped.popleft()
            try:
                if work is not None:
                    work.wait()
                finish()
            except SlipstreamError:  # no caller can get the error, because the handle is gone
                continue

    def _see(self, handle: TensorHandle) -> None:
        with self._lock:
            use = self._uses.get(handle.name)
            if use is not None and use.handle() is handle:
                del self._uses[handle.name]
                self._last_seen = max(self._last_seen, use.number)

    def _drop(self, work: Waitable | None, finish: Callable[[], Any]) -> None:
        # The lock is not taken: garbage is collected in any thread, even one that holds the lock.
        self._dropped.append((work, finish))

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
