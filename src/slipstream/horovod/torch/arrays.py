"""Array functions of the Horovod API for PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class TorchArrays:
    """Implementation of `request.Arrays` for PyTorch's tensors."""

    def empty(self, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Return a new, uninitialized tensor of the type of another."""
        return torch.empty(tuple(shape), dtype=like.dtype)

    def zeros(self, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a new tensor of zeros; `dtype` is the engine's name of the type."""
        return torch.zeros(tuple(shape), dtype=getattr(torch, dtype))

    def shape(self, array: torch.Tensor) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(array.shape)

    def flat(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a new one-dimensional tensor with the elements of all tensors."""
        return torch.cat([each.reshape(-1) for each in arrays])

    def unflatten(self, flat: torch.Tensor, arrays: Sequence[torch.Tensor]) -> None:
        """Copy the elements of one tensor into others, one after another."""
        parts = torch.split(flat, [each.numel() for each in arrays])
        for part, each in zip(parts, arrays, strict=True):
            each.copy_(part.view_as(each))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy elements; the shapes are the same."""
        target.copy_(source)

    def scaled(self, array: torch.Tensor, factor: float) -> torch.Tensor:
        """Return a new tensor times a factor: integers in float64, 16 bits in float32."""
        dtype = array.dtype
        if self.is_integral(array):
            return (array.double() * factor).to(dtype)
        if dtype.itemsize < torch.float32.itemsize:
            return (array.float() * factor).to(dtype)
        return array * factor

    def is_integral(self, array: torch.Tensor) -> bool:
        """Return whether the elements are whole numbers."""
        return not (array.dtype.is_floating_point or array.dtype.is_complex)

    def rows(self, array: torch.Tensor, begin: int, end: int) -> torch.Tensor:
        """Return a view of some rows, along the first dimension."""
        return array[begin:end]

    def combined(self, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """Return the adaptive sum of two tensors (Adasum; Maleki et al., MLSys 2021).

        Each is shortened by half of its projection: for orthogonal ones it is the sum, for equal
        ones the average. The sums of products are in float64.
        """
        a, b = low.reshape(-1).double(), high.reshape(-1).double()
        dot, norm_a, norm_b = float(a @ b), float(a @ a), float(b @ b)
        of_a = 1 - dot / (2 * norm_a) if norm_a > 0 else 1.0
        of_b = 1 - dot / (2 * norm_b) if norm_b > 0 else 1.0
        return (a * of_a + b * of_b).to(low.dtype).view_as(low)
