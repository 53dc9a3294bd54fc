"""Adapter of the Horovod API to PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from slipstream.horovod.common.exceptions import RefusedError
from slipstream.horovod.torch.devices import TorchDevices
from slipstream.torch.tensors import is_reachable, with_memory

_DTYPES = {
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bool: "bool",
}


class TorchArrays:
    """Implementation of `horovod.arrays.Arrays` for PyTorch's tensors."""

    def __init__(self) -> None:
        self.devices = TorchDevices()

    def memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that shares the memory of a user's tensor, but not its gradient.

        Raises:
            ValueError: The engine does not support the tensor's type, device or layout.
            UnsupportedError: The tensor has no memory of its own; DTensor is an example.
        """
        if not is_reachable(tensor) or tensor.layout != torch.strided:
            raise RefusedError(
                f"Tensor type {tensor.type()} is not supported. It is on {tensor.device} with"
                f" layout {tensor.layout}; allowed: dense tensors on the CPU"
                " and on CUDA GPUs"
            )
        if tensor.dtype not in _DTYPES:
            raise ValueError(
                f"Tensor type {tensor.type()} is not supported. Allowed:"
                f" {', '.join(_DTYPES.values())}"
            )
        if not tensor.is_contiguous():
            raise ValueError("Tensor is required to be contiguous. Call .contiguous() before.")
        if not tensor.is_cpu:
            self.devices.admit(tensor.device)
        return with_memory(tensor).detach()

    def from_numpy(self, values: NDArray[Any]) -> torch.Tensor:
        """Return a tensor that shares the memory of a NumPy array."""
        return torch.from_numpy(values)  # pyright: ignore[reportUnknownMemberType]

    def to_numpy(self, array: torch.Tensor) -> NDArray[Any]:
        """Return a NumPy array that shares the memory of a tensor."""
        return array.numpy()

    def empty(self, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Return a new, uninitialized tensor of a given shape, with the element type of `like`."""
        return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)

    def zeros(self, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a new tensor of zeros; `dtype` is the engine's name of the element type."""
        return torch.zeros(tuple(shape), dtype=getattr(torch, dtype))

    def shape(self, array: torch.Tensor) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(array.shape)

    def dtype(self, array: torch.Tensor) -> str:
        """Return the engine's name of the type of a tensor's elements."""
        return _DTYPES[array.dtype]

    def flat(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a new one-dimensional tensor with the elements of all tensors."""
        return torch.cat([array.reshape(-1) for array in arrays])

    def unflatten(self, flat: torch.Tensor, arrays: Sequence[torch.Tensor]) -> None:
        """Cut a one-dimensional tensor into consecutive parts; copy each part into a tensor."""
        parts = torch.split(flat, [array.numel() for array in arrays])
        # On a GPU, one kernel copies many parts.
        sources = [part.view_as(array) for part, array in zip(parts, arrays, strict=True)]
        torch._foreach_copy_(list(arrays), sources)  # pyright: ignore

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy the elements of `source` into `target`, which has the same shape."""
        target.copy_(source)

    def scaled(self, array: torch.Tensor, factor: float) -> torch.Tensor:
        """Return the tensor times a factor, as a new tensor of the same element type.

        Integers are multiplied in float64, and 16-bit types in float32.
        """
        dtype = array.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            return (array.double() * factor).to(dtype)
        if dtype.itemsize < torch.float32.itemsize:
            return (array.float() * factor).to(dtype)
        return array * factor

    def rows(self, array: torch.Tensor, begin: int, end: int) -> torch.Tensor:
        """Return a view of the rows `begin` to `end` (exclusive) along the first dimension."""
        return array[begin:end]

    def combined(self, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """Return the adaptive sum of two tensors (Adasum; Maleki et al., MLSys 2021).

        From each of the two tensors, half of its projection onto the other tensor is subtracted;
        then both are added. So orthogonal tensors are added, and equal tensors are averaged. Dot
        products are summed in float64.
        """
        a, b = low.reshape(-1).double(), high.reshape(-1).double()
        # Not converted to Python's numbers, for which the CPU would wait for a GPU.
        dot, norm_a, norm_b = a @ b, a @ a, b @ b
        weight_a = torch.where(norm_a > 0, 1 - dot / (2 * norm_a), 1.0)
        weight_b = torch.where(norm_b > 0, 1 - dot / (2 * norm_b), 1.0)
        return (a * weight_a + b * weight_b).to(low.dtype).view_as(low)
