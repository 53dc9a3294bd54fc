"""Adapter protocol: the operations on arrays that a framework must provide for the Horovod API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from slipstream.comm.arrays import Array

if TYPE_CHECKING:
    from slipstream.horovod.sites import Devices


class Arrays(Protocol):
    """Adapter of a framework: small functions that work on the framework's arrays.

    A new framework implements this class (`horovod.torch.arrays.TorchArrays` is an example), passes
    an object of it to `horovod.init.init`, and gives Horovod's names to the functions of
    `horovod.collectives`.

    `memory` takes a tensor of the user. All functions but `memory` take and return arrays in the
    form that `memory` returns: contiguous and without gradients. The engine reads and writes the
    memory of arrays on the CPU directly. The adapter's functions only prepare the engine's
    input and complete its results, for example by copies and multiplications. Only in-place
    operations write to a user's tensor. A framework with immutable arrays, such as JAX, leaves out
    the in-place operations and returns results as its own arrays.

    Arrays of devices such as GPUs need a further adapter, which `devices` returns.
    """

    @property
    def devices(self) -> Devices | None:
        """Adapter of the devices on which arrays may be; None if all arrays are on the CPU."""
        ...

    def memory(self, tensor: Any) -> Array:
        """Return an array that shares the memory of a user's tensor, but not its gradient.

        Raises:
            ValueError: The engine does not support the tensor's type, device or layout.
        """
        ...

    def from_numpy(self, values: NDArray[Any]) -> Array:
        """Return an array with the elements and the type of a NumPy array."""
        ...

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """Return a NumPy array with the elements of an array; NumPy must have the element type."""
        ...

    def empty(self, like: Array, shape: Sequence[int]) -> Array:
        """Return a new, uninitialized array with the element type and the device of `like`."""
        ...

    def zeros(self, dtype: str, shape: Sequence[int]) -> Array:
        """Return a new array of zeros on the CPU; `dtype` is the engine's name of the type."""
        ...

    def shape(self, array: Array) -> tuple[int, ...]:
        """Return the shape of an array."""
        ...

    def dtype(self, array: Array) -> str:
        """Return the engine's name of the element type: bool, int32, bfloat16, float32, ..."""
        ...

    def flat(self, arrays: Sequence[Array]) -> Array:
        """Return a new one-dimensional array with the elements of all arrays."""
        ...

    def unflatten(self, flat: Array, arrays: Sequence[Array]) -> None:
        """Cut a one-dimensional array into consecutive parts, and copy each part into an array."""
        ...

    def copy(self, target: Array, source: Array) -> None:
        """Copy the elements of `source` into `target`, which has the same shape."""
        ...

    def scaled(self, array: Array, factor: float) -> Array:
        """Return the array times a factor, as a new array of the same element type.

        Integers are multiplied in float64, and 16-bit types in float32.
        """
        ...

    def rows(self, array: Array, begin: int, end: int) -> Array:
        """Return a view of the rows `begin` to `end` (exclusive) along the first dimension."""
        ...

    def combined(self, low: Array, high: Array) -> Array:
        """Return the adaptive sum of the arrays of two ranks (Adasum; Maleki et al., MLSys 2021).

        Both ranks pass the array of the lower rank first, so they compute the same result.
        """
        ...
