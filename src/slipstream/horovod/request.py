"""Requests that a rank submits, and the handles of their results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream import _core
from slipstream.comm.arrays import Array
from slipstream.comm.negotiator import Tensor
from slipstream.errors import SlipstreamError
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.common.exceptions import HorovodInternalError

# Kinds of requests, with the names that Horovod's messages use.
_TITLES = {
    "allreduce": "Allreduce",
    "adasum": "Allreduce",
    "all_gather": "Allgather",
    "broadcast": "Broadcast",
    "all_to_all": "Alltoall",
    "reduce_scatter": "Reducescatter",
    "barrier": "Barrier",
}


HOST = "cpu"  # name of the memory of the host among the kinds of devices


class Residual:
    """Rounding errors of a codec for one tensor, for error feedback; they are zero at first.

    Args:
        shape: Shape of the tensor.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._by_device: dict[str, Array] = {}

    def on(self, device: str, zeros: Callable[[str, Sequence[int]], Array]) -> Array:
        """Return the rounding errors in the memory of a kind of device.

        Args:
            device: Kind of device on which the codec runs.
            zeros: Function that makes an array of zeros there.
        """
        if device not in self._by_device:
            self._by_device[device] = zeros("float32", self._shape)
        return self._by_device[device]


@dataclass(kw_only=True, slots=True)
class Request:
    """One tensor of one rank, and the operation to run on it.

    Args:
        kind: Operation: allreduce, adasum, all_gather, broadcast, all_to_all, reduce_scatter or
            barrier.
        name: Name of the tensor on all ranks of a process set; it is set before the request is
            submitted.
        array: Array of this rank; None if this rank sends no data.
        output: Array of the shape of `array` that receives the result; None (the default) for a new
            array.
        op: Reduction: sum (default), average, min, max or product.
        prescale, postscale: Factors by which elements are multiplied before and after the reduction
            (default 1).
        root: Sender of a broadcast, as a rank of the process set (default 0).
        splits: Number of rows of `array` that each rank receives in an all_to_all.
        codec: Codec of a float32 allreduce between hosts (default none).
        residual: Rounding errors of the codec; None (the default) for no error feedback.
        priority: Priority on the network (default 0); requests with a higher priority go first.
        device: Kind of device on which the arrays are (default: the memory of the host).
        after: Event of the device at which the array has its values; None (the default) if it has
            them already.
    """

    kind: str
    name: str = ""
    array: Array = None
    output: Array = None
    op: str = "sum"
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: Sequence[int] = ()
    codec: str = "none"
    residual: Residual | None = None
    priority: int = 0
    device: str = HOST
    after: Any = None

    @property
    def title(self) -> str:
        """Horovod's name for the kind of operation."""
        return _TITLES[self.kind]

    def tensor(self, arrays: Arrays) -> Tensor:
        """Return the tensor's description, which must be the same on all ranks."""
        shape = list(arrays.shape(self.array))
        if self.kind in ("all_gather", "all_to_all") and shape:
            shape[0] = -1
        return Tensor(
            self.name,
            _core.DType[arrays.dtype(self.array).upper()],
            shape,
            collective="allreduce" if self.kind in ("adasum", "barrier") else self.kind,
            root=self.root,
            codec=self.codec,
            note=f"{self.kind} {self.op} {self.prescale:.17g} {self.postscale:.17g}"
            f" {'lossless' if self.residual is None else 'feedback'} on {self.device}",
        )

    @classmethod
    def without_data(
        cls, tensor: Tensor, zeros: Callable[[str, Sequence[int], str], Array]
    ) -> Request:
        """Return the request of a rank that has called join(), for a tensor of other ranks.

        The request's array has zeros. If the ranks may pass different shapes, there is no array.

        Args:
            tensor: Description of the tensor.
            zeros: Function that makes an array of zeros from the name of an element type, a shape
                and a kind of device.
        """
        kind, op, prescale, postscale, feedback, _, device = tensor.note.split()
        array = None
        if -1 not in tensor.shape:
            array = zeros(tensor.dtype.name.lower(), tensor.shape, device)
        return cls(
            kind=kind,
            name=tensor.name,
            array=array,
            output=array,
            op=op,
            prescale=float(prescale),
            postscale=float(postscale),
            root=tensor.root,
            codec=tensor.codec,
            residual=Residual(tensor.shape) if feedback == "feedback" else None,
            device=device,
        )


class Waitable(Protocol):
    """Operation in flight, such as a `comm.Handle`."""

    def done(self) -> bool:
        """Return whether the operation has ended; does not block."""
        ...

    def wait(self) -> Any:
        """Block until the operation has ended.

        Raises:
            SlipstreamError: The operation has failed.
        """
        ...


class TensorHandle:
    """Handle that waits for the result of a submitted tensor. Any thread may use the handle.

    Args:
        name: Name of the tensor.
        on_seen: Function that is called with this handle when a caller first sees that the tensor
            is done. Two threads that see at the same time that the tensor is done may both call
            `on_seen`.
        on_dropped: Function that is called if the handle is garbage collected before the result was
            made. The arguments of `on_dropped` are the engine's handle, if any, and the function
            that makes the result.
    """

    def __init__(
        self,
        name: str = "",
        on_seen: Callable[[TensorHandle], None] | None = None,
        on_dropped: Callable[[Waitable | None, Callable[[], Any]], None] | None = None,
    ) -> None:
        self.name = name
        self.submitted = time.monotonic_ns()
        self._on_seen, self._on_dropped = on_seen, on_dropped
        self._started = threading.Event()  # set when the operation has started or failed
        self._finishing = threading.Lock()
        self._work: Waitable | None = None
        self._finish: Callable[[], Any] | None = None
        self._follow: Callable[[], None] | None = None
        self._result: Any = None
        self._error: Exception | None = None

    def begin(
        self,
        work: Waitable | None,
        finish: Callable[[], Any],
        follow: Callable[[], None] | None = None,
    ) -> None:
        """Set the operation that wait() waits for, and the function that makes the result from it.

        Args:
            work: Operation; None if it is done.
            finish: Function that makes the result.
            follow: Function that makes the current stream of a device wait for the result, in each
                call of wait(). None (the default) stands for a result in the memory of the host.
        """
        self._work, self._finish, self._follow = work, finish, follow
        self._started.set()

    def fail(self, error: Exception) -> None:
        """Set the error that wait() raises instead of returning a result."""
        self._error = error
        self._started.set()

    def done(self) -> bool:
        """Return whether wait() would return without blocking; does not block."""
        is_over = self.is_over()
        if is_over:
            self._report_seen()
        return is_over

    def is_over(self) -> bool:
        """Return what done() returns, but do not call `on_seen`."""
        if not self._started.is_set():
            return False
        work = self._work  # read once: another thread may set it to None meanwhile
        return work is None or work.done()

    def settle(self) -> None:
        """Block until the operation has a result or an error."""
        self._started.wait()
        with self._finishing:
            if self._error is None and self._finish is not None:
                self._conclude(self._finish)
        self._report_seen()

    def wait(self) -> Any:
        """Block until the result is known, and return it; later calls return the same object.

        Raises:
            HorovodInternalError: The collective failed.
        """
        self.settle()
        if self._error is not None:
            raise HorovodInternalError(str(self._error)) from self._error
        if self._follow is not None:
            self._follow()
        return self._result

    def __del__(self) -> None:
        """Call `on_dropped` if no result was made, because a user's tensor may need the result.

        On a device, the result is made even if nobody waits for it.
        """
        is_on_host = self._follow is None
        if self._finish is not None and is_on_host and self._on_dropped is not None:
            self._on_dropped(self._work, self._finish)

    def _report_seen(self) -> None:
        on_seen, self._on_seen = self._on_seen, None
        if on_seen is not None:
            on_seen(self)

    def _conclude(self, finish: Callable[[], Any]) -> None:
        try:
            if self._work is not None:
                self._work.wait()
            self._result = finish()
        except SlipstreamError as error:
            self._error = error
        self._work, self._finish = None, None
