"""Names of tensors under way: no two at a time have the same."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

from slipstream.horovod.request import Handle, Request

_FEW = 1024


class NamesInUse:
    """A name is free again when this rank has seen that its tensor is done.

    It sees so by the tensor's handle. Where that was dropped, by any other's that was waited for
    later: how fast the network is decides nothing. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._taken: dict[str, tuple[weakref.ref[Handle], int]] = {}
        self._num_seen = 0
        self._most = _FEW

    def take(self, requests: Sequence[Request]) -> list[Handle]:
        """Returns handles for tensors, whose names are in use from now on.

        Raises:
            ValueError: one is in use, or stands twice.
        """
        handles = [Handle(each.name, self._see) for each in requests]
        with self._lock:
            names: set[str] = set()
            for each in requests:
                if each.name in names or self._is_taken(each.name):
                    raise ValueError(
                        f"Requested to {each.kind} a tensor with the same name as another tensor"
                        f" that is currently being processed: {each.name!r}. Use a different tensor"
                        " name, or wait for the other one with synchronize()."
                    )
                names.add(each.name)
            for each, handle in zip(requests, handles, strict=True):
                self._taken[each.name] = weakref.ref(handle), self._num_seen
            if len(self._taken) > self._most:
                self._forget_dropped()
        return handles

    def free(self, name: str) -> None:
        """Makes a name free whose tensor was not submitted after all."""
        with self._lock:
            self._taken.pop(name, None)

    def _see(self, handle: Handle) -> None:
        with self._lock:
            reference, _ = self._taken.get(handle.name, (None, 0))
            if reference is not None and reference() is handle:
                del self._taken[handle.name]
                self._num_seen += 1

    def _is_taken(self, name: str) -> bool:
        reference, num_seen = self._taken.get(name, (None, 0))
        if reference is None:
            return False
        handle = reference()
        return num_seen == self._num_seen or (handle is not None and not handle.is_over())

    def _forget_dropped(self) -> None:
        self._taken = {name: use for name, use in self._taken.items() if self._is_taken(name)}
        self._most = 2 * len(self._taken) + _FEW
