"""Requests that a rank submits under a name, and the handles of their results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream import comm
from slipstream.comm.arrays import Array, view
from slipstream.comm.negotiator import Tensor
from slipstream.errors import SlipstreamError
from slipstream.horovod.common.exceptions import HorovodInternalError

# Horovod's names of the kinds of requests.
_TITLES = {
    "allreduce": "Allreduce",
    "adasum": "Allreduce",
    "all_gather": "Allgather",
    "broadcast": "Broadcast",
    "all_to_all": "Alltoall",
    "reduce_scatter": "Reducescatter",
    "barrier": "Barrier",
}


class Arrays(Protocol):
    """Array functions that a framework must provide; one adapter class implements them.

    All arrays are contiguous, on the CPU and without gradients. The engine reads and writes their
    memory itself; these functions do the steps before and after its operations. A new framework
    implements this class (`horovod.torch.arrays.TorchArrays` is the model) and passes it to
    `join_job`.
    """

    def empty(self, like: Array, shape: Sequence[int]) -> Array:
        """Return a new, uninitialized array of the type of another."""
        ...

    def zeros(self, dtype: str, shape: Sequence[int]) -> Array:
        """Return a new array of zeros; `dtype` is the engine's name of the type."""
        ...

    def shape(self, array: Array) -> tuple[int, ...]:
        """Return the shape of an array."""
        ...

    def flat(self, arrays: Sequence[Array]) -> Array:
        """Return a new one-dimensional array with the elements of all arrays."""
        ...

    def unflatten(self, flat: Array, arrays: Sequence[Array]) -> None:
        """Copy the elements of one array into others, one after another."""
        ...

    def copy(self, target: Array, source: Array) -> None:
        """Copy elements; the shapes are the same."""
        ...

    def scaled(self, array: Array, factor: float) -> Array:
        """Return a new array times a factor: integers in float64, 16 bits in float32."""
        ...

    def is_integral(self, array: Array) -> bool:
        """Return whether the elements are whole numbers."""
        ...

    def rows(self, array: Array, begin: int, end: int) -> Array:
        """Return a view of some rows, along the first dimension."""
        ...

    def combined(self, low: Array, high: Array) -> Array:
        """Return the adaptive sum of the arrays of a lower and a higher rank (Adasum)."""
        ...


@dataclass(kw_only=True, slots=True)
class Request:
    """One tensor of one rank, and the operation for it.

    Args:
        kind: Kind: allreduce, adasum, all_gather, broadcast, all_to_all, reduce_scatter or barrier.
        name: Name of the tensor on all ranks of a process set.
        array: Array of this rank; None if it takes no part.
        output: Array for the result, of the shape of `array`; None for a new array.
        op: Reduction: sum, average, min, max or product.
        prescale, postscale: Factors before and after the reduction.
        root: Rank in the process set that sends a broadcast.
        splits: Number of rows of `array` for each rank of an all_to_all.
        codec: Codec of a float32 allreduce between hosts.
        residual: Memory for error feedback, as in `comm.Group.allreduce`; None for no error
            feedback.
        priority: Priority on the network; a higher one goes first.
    """

    kind: str
    name: str
    array: Array = None
    output: Array = None
    op: str = "sum"
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: Sequence[int] = ()
    codec: str = "none"
    residual: Array = None
    priority: int = 0

    @property
    def title(self) -> str:
        """Horovod's name of the kind."""
        return _TITLES[self.kind]

    def tensor(self) -> Tensor:
        """Return the description that all ranks must pass alike."""
        seen = view(self.array)
        shape = list(seen.shape)
        if self.kind in ("all_gather", "all_to_all") and shape:
            shape[0] = -1
        return Tensor(
            self.name,
            seen.dtype,
            shape,
            collective="allreduce" if self.kind in ("adasum", "barrier") else self.kind,
            root=self.root,
            codec=self.codec,
            note=f"{self.kind} {self.op} {self.prescale:.17g} {self.postscale:.17g}"
            f" {'lossless' if self.residual is None else 'feedback'}",
        )

    @classmethod
    def without_data(cls, tensor: Tensor, arrays: Arrays) -> Request:
        """Return the request with which a joined rank takes part in a tensor of the others."""
        kind, op, prescale, postscale, feedback = tensor.note.split()
        zeros = None
        if -1 not in tensor.shape:
            zeros = arrays.zeros(tensor.dtype.name.lower(), tensor.shape)
        return cls(
            kind=kind,
            name=tensor.name,
            array=zeros,
            output=zeros,
            op=op,
            prescale=float(prescale),
            postscale=float(postscale),
            root=tensor.root,
            codec=tensor.codec,
            residual=arrays.zeros("float32", tensor.shape) if feedback == "feedback" else None,
        )


class TensorHandle:
    """A submitted tensor whose result can be awaited. Safe to use from any thread.

    Args:
        name: Name of the tensor.
        seen: Function that is called with this handle when its end is first seen; once, as a rule.
        dropped: Function that is called if nobody refers to the handle any more, with the engine's
            handle, if any, and the function that makes the result.
    """

    def __init__(
        self,
        name: str = "",
        seen: Callable[[TensorHandle], None] | None = None,
        dropped: Callable[[comm.Handle | None, Callable[[], Any]], None] | None = None,
    ) -> None:
        self.name = name
        self.submitted = time.monotonic_ns()
        self._seen, self._dropped = seen, dropped
        self._known = threading.Event()  # it is under way or has failed
        self._finishing = threading.Lock()
        self._work: comm.Handle | None = None
        self._finish: Callable[[], Any] | None = None
        self._result: Any = None
        self._error: Exception | None = None

    def begin(self, work: comm.Handle | None, finish: Callable[[], Any]) -> None:
        """Set the operation to wait for, if any, and the function that then makes the result."""
        self._work, self._finish = work, finish
        self._known.set()

    def fail(self, error: Exception) -> None:
        """Set the error that takes the place of the result."""
        self._error = error
        self._known.set()

    def done(self) -> bool:
        """Return whether wait() would return at once; does not block."""
        is_over = self.is_over()
        if is_over:
            self._tell_seen()
        return is_over

    def is_over(self) -> bool:
        """Return the same as done(), without a call of `seen`."""
        if not self._known.is_set():
            return False
        work = self._work  # another thread may conclude meanwhile
        return work is None or work.done()

    def settle(self) -> None:
        """Block until there is a result or an error."""
        self._known.wait()
        with self._finishing:
            if self._error is None and self._finish is not None:
                self._conclude(self._finish)
        self._tell_seen()

    def wait(self) -> Any:
        """Block until the result is there, and return it; again, it returns the same.

        Raises:
            HorovodInternalError: the collective failed.
        """
        self.settle()
        if self._error is not None:
            raise HorovodInternalError(str(self._error)) from self._error
        return self._result

    def __del__(self) -> None:
        """Hand over the making of the result, which may go into a tensor of the user's."""
        if self._finish is not None and self._dropped is not None:
            self._dropped(self._work, self._finish)

    def _tell_seen(self) -> None:
        seen, self._seen = self._seen, None
        if seen is not None:
            seen(self)

    def _conclude(self, finish: Callable[[], Any]) -> None:
        try:
            if self._work is not None:
                self._work.wait()
            self._result = finish()
        except SlipstreamError as error:
            self._error = error
        self._work, self._finish = None, None
