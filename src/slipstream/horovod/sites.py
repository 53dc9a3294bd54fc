"""Sites of operations: the memory of the host, or that of a device such as a GPU.

Operations on the host's memory are awaited by the caller's thread, which also makes the results. On
a device, everything is enqueued on the device's streams when the operation starts, and the
caller's stream waits for the results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from slipstream import comm
from slipstream.comm.arrays import Array
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.fusion import ReadyTensor
from slipstream.horovod.request import HOST, Request, Residual


class Site(Protocol):
    """Memory on which operations run, with the collectives for this memory.

    Only one thread may use a site.
    """

    @property
    def group(self) -> Any:
        """Group with the collectives that `comm.Group` has."""
        ...

    @property
    def rank(self) -> int:
        """Rank of this process in the process set."""
        ...

    @property
    def size(self) -> int:
        """Number of ranks of the process set."""
        ...

    @property
    def finishes_together(self) -> bool:
        """Whether tensors that share an operation get their results by one call."""
        ...

    def starting(self, requests: Sequence[Request]) -> contextlib.AbstractContextManager[None]:
        """Return a context in which functions on arrays run after the submission of requests."""
        ...

    def begin(
        self, members: Sequence[ReadyTensor], work: Any, finish: Callable[[], Sequence[Any]]
    ) -> None:
        """Pass an operation that has started to the handles of its tensors.

        Args:
            members: Tensors; there is only one unless the site finishes tensors together.
            work: Operation, as the group's collectives return it; None if it is done.
            finish: Function that returns the results of all members when the operation is done.
        """
        ...

    def zeros(self, dtype: str, shape: Sequence[int]) -> Array:
        """Return a new array of zeros; `dtype` is the engine's name of the element type."""
        ...

    def losses(self, residual: Residual) -> Array:
        """Return the array of a residual, in the memory in which the codec runs."""
        ...

    @property
    def fuses_losses(self) -> bool:
        """Whether tensors with residuals may share an operation; equal on all ranks."""
        ...

    def release_done(self) -> None:
        """Release the memory of operations that are done; does not block."""
        ...

    def close(self) -> None:
        """Leave the site, and block until no operation uses its memory."""
        ...


class HostSite:
    """Memory of the host, on which the engine works directly.

    Args:
        group: Ranks of the process set.
        arrays: Adapter of the framework.
    """

    finishes_together = False
    fuses_losses = True

    def __init__(self, group: comm.Group, arrays: Arrays) -> None:
        self.group, self._arrays = group, arrays
        self.rank, self.size = group.rank, group.size

    def starting(self, requests: Sequence[Request]) -> contextlib.AbstractContextManager[None]:
        """Return a context that does nothing."""
        return contextlib.nullcontext()

    def begin(
        self, members: Sequence[ReadyTensor], work: Any, finish: Callable[[], Sequence[Any]]
    ) -> None:
        """Pass an operation to the tensor's handle, if any; joined ranks have no handle."""
        (member,) = members
        if member.handle is not None:
            member.handle.begin(work, lambda: finish()[0])

    def zeros(self, dtype: str, shape: Sequence[int]) -> Array:
        """Return a new array of zeros."""
        return self._arrays.zeros(dtype, shape)

    def losses(self, residual: Residual) -> Array:
        """Return the array of a residual."""
        return residual.on(HOST, self.zeros)

    def release_done(self) -> None:
        """Do nothing, because handles keep the memory of operations."""

    def close(self) -> None:
        """Do nothing, because the engine ends the operations."""


class Devices(Protocol):
    """Adapter of a framework's devices that have memory of their own.

    Kinds of devices have names, such as cuda. Ranks compare the kind of a tensor's device.
    """

    def prepare(self, requests: Sequence[Request]) -> None:
        """Note in requests on which kind of device their arrays are, and the current moment.

        Requests whose result has the shape of their array get an output too. Arrays of the host are
        left alone.
        """
        ...

    def expect(self, ordinal: int) -> None:
        """Note the device for tensors of other ranks, if this rank has submitted none so far.

        Args:
            ordinal: Number of the device; a negative number means the current device.
        """
        ...

    def site(self, kind: str, group: comm.Group) -> Site:
        """Return a site on this process's device of a kind, for the ranks of a process set."""
        ...
