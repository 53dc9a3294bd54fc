"""An adapter of the Horovod API to NumPy: all that a further framework would have to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class NumpyArrays:
    """Implementation of `horovod.arrays.Arrays` for NumPy's arrays."""

    devices = None  # all arrays are on the CPU

    def memory(self, tensor: NDArray[Any]) -> NDArray[Any]:
        if tensor.dtype.kind not in "biuf" or not tensor.flags.c_contiguous:
            raise ValueError(f"{tensor.dtype} is not supported, or the array is not contiguous")
        return tensor

    def from_numpy(self, values: NDArray[Any]) -> NDArray[Any]:
        return values

    def to_numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def empty(self, like: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        return np.empty(shape, like.dtype)

    def zeros(self, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
        return np.zeros(shape, dtype)

    def shape(self, array: NDArray[Any]) -> tuple[int, ...]:
        return array.shape

    def dtype(self, array: NDArray[Any]) -> str:
        return array.dtype.name

    def flat(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([array.reshape(-1) for array in arrays])

    def unflatten(self, flat: NDArray[Any], arrays: Sequence[NDArray[Any]]) -> None:
        begin = 0
        for array in arrays:
            array[...] = flat[begin : begin + array.size].reshape(array.shape)
            begin += array.size

    def copy(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        target[...] = source

    def scaled(self, array: NDArray[Any], factor: float) -> NDArray[Any]:
        wide = np.float32 if array.dtype == np.float16 else np.float64
        return (array.astype(wide) * factor).astype(array.dtype)

    def rows(self, array: NDArray[Any], begin: int, end: int) -> NDArray[Any]:
        return array[begin:end]

    def combined(self, low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
        a: Floats = low.astype(np.float64)
        b: Floats = high.astype(np.float64)
        dot, norm_a, norm_b = float((a * b).sum()), float((a * a).sum()), float((b * b).sum())
        weight_a = 1 - dot / (2 * norm_a) if norm_a > 0 else 1.0
        weight_b = 1 - dot / (2 * norm_b) if norm_b > 0 else 1.0
        return (a * weight_a + b * weight_b).astype(low.dtype)
