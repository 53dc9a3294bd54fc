"""What callers give a model, checked and as the engines take it."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.images.reader import ImageReader
from slipstream.infer.package.package import Manifest, Tensor

Buffers: TypeAlias = "Mapping[str, Array]"
FILE = (bytes, bytearray, memoryview)
ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def kept(given: Any) -> Any:
    """What a caller gave, with memory of its own: the caller may write to theirs again. What no
    model takes stays as it is."""
    if isinstance(given, (bytearray, memoryview)):
        return bytes(given)
    if isinstance(given, np.ndarray):
        return given.copy()
    if isinstance(given, Mapping):
        return {name: kept(each) for name, each in cast("Mapping[Any, Any]", given).items()}
    if isinstance(given, (list, tuple)):
        several = [kept(each) for each in cast("Sequence[Any]", given)]
        return tuple(several) if isinstance(given, tuple) else several
    try:
        return given if isinstance(given, (bytes, str)) else _of_dlpack(given, "").copy()
    except UsageError:
        return given


class Taker:
    """Takes the inputs of one model. Any number of threads may use it at a time."""

    def __init__(self, manifest: Manifest) -> None:
        self._tensors = {item.name: item for item in manifest.inputs}
        self._dtypes = {item.name: np.dtype(item.dtype) for item in manifest.inputs}
        self._images: dict[str, _ImageInput] = {}
        if manifest.images is not None:
            tensor = self._tensors[manifest.images.input]
            _, height, width, channels = tensor.shape
            reader = ImageReader(
                size=manifest.images.size, height=height, width=width, channels=channels
            )
            self._images[tensor.name] = _ImageInput(tensor, reader)

    def taken(
        self, inputs: tuple[Any, ...], named: Mapping[str, Any], buffers: Buffers | None = None
    ) -> dict[str, Array]:
        """Every input by name.

        Args:
            inputs: arrays in order, or one dictionary by name.
            named: more of them by name.
            buffers: arrays to write all of them to, of their dtypes and shapes; default where they
                are, where that will do.

        Raises UsageError for inputs that are missing, unknown, or not as the manifest says.
        """
        given = _by_name(inputs, named, list(self._tensors))
        if given.keys() != self._tensors.keys():
            missing = sorted(self._tensors.keys() - given.keys())
            strange = sorted(given.keys() - self._tensors.keys())
            words = [f"input {name!r} is missing" for name in missing]
            words += [f"there is no input {name!r}" for name in strange]
            raise UsageError(f"{', '.join(words)}; the model has {', '.join(self._tensors)}")
        return {name: self._one(name, given[name], buffers) for name in self._tensors}

    def buffers(self) -> dict[str, Array]:
        """New arrays for all inputs, on cache lines."""
        return {name: _aligned(tensor) for name, tensor in self._tensors.items()}

    def _one(self, name: str, given: Any, buffers: Buffers | None) -> Array:
        target = None if buffers is None else buffers[name]
        if name in self._images:
            return self._images[name](given, target)
        return _placed(_array(given, self._tensors[name], self._dtypes[name]), target)


@dataclass(frozen=True)
class _ImageInput:
    """An input that takes files and images of any size."""

    tensor: Tensor
    read: ImageReader

    def __call__(self, given: Any, target: Array | None) -> Array:
        """(n, height, width, channels) of uint8: `target`, or what was given, or a new array."""
        batch = self.tensor.shape[0]
        if isinstance(given, (list, tuple)):
            several = cast("Sequence[Any]", given)
        elif isinstance(given, FILE) or (array := self._of_array(given)).ndim < 4:
            several = [given]
        else:
            return _placed(_array(array, self.tensor, np.dtype(np.uint8)), target)
        if len(several) != batch:
            raise UsageError(
                f"input {self.tensor.name!r} has {batch} images, and {len(several)} are given"
            )
        target = np.empty(self.tensor.shape, np.uint8) if target is None else target
        for number, each in enumerate(several):
            self._put(each, target[number])
        return target

    def _put(self, given: Any, target: Array) -> None:
        image = given if isinstance(given, FILE) else self._of_array(given)
        if isinstance(image, np.ndarray) and image.shape == target.shape:
            np.copyto(target, image)
        else:
            self.read(image, target)

    def _of_array(self, given: Any) -> Array:
        array = given if isinstance(given, np.ndarray) else _of_dlpack(given, self.tensor.name)
        if array.dtype != np.uint8:
            raise UsageError(
                f"input {self.tensor.name!r} is {array.dtype} {array.shape}; allowed: uint8"
                f" {self.tensor.shape}, uint8 images (rows, columns, {self.tensor.shape[3]}) of"
                " any size, or the bytes of image files"
            )
        return array


def _placed(array: Array, target: Array | None) -> Array:
    if target is None:
        return array
    np.copyto(target, array)
    return target


def _aligned(tensor: Tensor) -> Array:
    dtype = np.dtype(tensor.dtype)
    size = int(np.prod(tensor.shape)) * dtype.itemsize
    block = np.zeros(size + ALIGNMENT, np.uint8)
    begin = -block.ctypes.data % ALIGNMENT
    return block[begin : begin + size].view(dtype).reshape(tensor.shape)


def _by_name(inputs: tuple[Any, ...], named: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        given = {str(name): item for name, item in cast("Mapping[Any, Any]", inputs[0]).items()}
    elif len(inputs) > len(names):
        raise UsageError(f"{len(inputs)} inputs are given; the model has {', '.join(names)}")
    else:
        given = dict(zip(names, inputs, strict=False))
    if not named:
        return given
    twice = sorted(given.keys() & named.keys())
    if twice:
        raise UsageError(f"the input {', '.join(twice)} is given twice")
    return {**given, **named}


def _array(given: Any, tensor: Tensor, dtype: np.dtype[Any]) -> Array:
    array = given if isinstance(given, np.ndarray) else _of_dlpack(given, tensor.name)
    if array.dtype != dtype:
        raise UsageError(
            f"input {tensor.name!r} is {array.dtype}, and has to be {tensor.dtype};"
            f" convert it: .astype('{tensor.dtype}')"
        )
    if array.shape != tensor.shape:
        if (1, *array.shape) != tensor.shape:
            raise UsageError(
                f"input {tensor.name!r} has the shape {array.shape}, and has to have {tensor.shape}"
            )
        array = array[None]
    return np.asarray(array, order="C")


def _of_dlpack(given: Any, name: str) -> Array:
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    if not callable(getattr(given, "__dlpack__", None)):
        raise UsageError(f"input {name!r} is a {kind}; give a NumPy array, or one with __dlpack__")
    try:
        return np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"input {name!r}: NumPy cannot take the {kind}: {error}; copy it to the processor's"
            " memory, detached"
        ) from error
