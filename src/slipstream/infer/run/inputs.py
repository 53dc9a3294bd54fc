"""Check the inputs that callers give a model, and convert them to the arrays that engines read."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.images.reader import ImageReader
from slipstream.infer.package.package import Manifest, Tensor

Buffers: TypeAlias = "Mapping[str, Array]"
MakeBuffer: TypeAlias = "Callable[[np.dtype[Any], tuple[int, ...]], Array]"
FILE = (bytes, bytearray, memoryview)


def copy_item(item: Any) -> Any:
    """Return a copy of the inputs of one run, so that the caller may overwrite the original.

    An object that no model accepts as an input is returned without a copy.
    """
    if isinstance(item, (bytearray, memoryview)):
        return bytes(item)
    if isinstance(item, np.ndarray):
        return item.copy()
    if isinstance(item, Mapping):
        return {name: copy_item(value) for name, value in cast("Mapping[Any, Any]", item).items()}
    if isinstance(item, (list, tuple)):
        copies = [copy_item(value) for value in cast("Sequence[Any]", item)]
        return tuple(copies) if isinstance(item, tuple) else copies
    try:
        return item if isinstance(item, (bytes, str)) else _of_dlpack(item, "").copy()
    except UsageError:
        return item


class InputReader:
    """Reader of the inputs of one model. Any number of threads may use it simultaneously."""

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

    def read(
        self, inputs: tuple[Any, ...], named: Mapping[str, Any], buffers: Buffers | None = None
    ) -> dict[str, Array]:
        """Check the inputs of a call, and return the inputs by name.

        Args:
            inputs: Arrays in the order of the model's inputs, or one dictionary by input name.
            named: Further inputs by name.
            buffers: Arrays, by input name, into which all inputs are copied (default none:
                an array that already has the right dtype and shape is not copied).

        Raises:
            UsageError: an input is missing, unknown, or differs from its description in the
                manifest.
        """
        values = _by_name(inputs, named, list(self._tensors))
        if values.keys() != self._tensors.keys():
            missing = sorted(self._tensors.keys() - values.keys())
            unknown = sorted(values.keys() - self._tensors.keys())
            words = [f"input {name!r} is missing" for name in missing]
            words += [f"there is no input {name!r}" for name in unknown]
            raise UsageError(f"{', '.join(words)}; the model has {', '.join(self._tensors)}")
        return {name: self._one(name, values[name], buffers) for name in self._tensors}

    def buffers(self, make: MakeBuffer) -> dict[str, Array]:
        """Return new arrays for all inputs by name; `make` is the `buffer` of an executable."""
        return {name: make(self._dtypes[name], item.shape) for name, item in self._tensors.items()}

    def _one(self, name: str, value: Any, buffers: Buffers | None) -> Array:
        target = None if buffers is None else buffers[name]
        if name in self._images:
            return self._images[name](value, target)
        return _copied_to(target, _array(value, self._tensors[name], self._dtypes[name]))


@dataclass(frozen=True)
class _ImageInput:
    """A model's input that accepts image files, and images of any size."""

    tensor: Tensor
    read: ImageReader

    def __call__(self, value: Any, target: Array | None) -> Array:
        """Return the images as uint8 (n, height, width, channels).

        If `target` is given, the images are copied into it, and it is returned. Otherwise the
        result is the caller's own array, or a new array.
        """
        batch = self.tensor.shape[0]
        if isinstance(value, (list, tuple)):
            images = cast("Sequence[Any]", value)
        elif isinstance(value, FILE) or (array := self._of_array(value)).ndim < 4:
            images = [value]
        else:
            return _copied_to(target, _array(array, self.tensor, np.dtype(np.uint8)))
        if len(images) != batch:
            raise UsageError(
                f"input {self.tensor.name!r} has {batch} images, and {len(images)} are given"
            )
        target = np.empty(self.tensor.shape, np.uint8) if target is None else target
        for image, part in zip(images, target, strict=True):
            self._put(image, part)
        return target

    def _put(self, value: Any, target: Array) -> None:
        image = value if isinstance(value, FILE) else self._of_array(value)
        if isinstance(image, np.ndarray) and image.shape == target.shape:
            np.copyto(target, image)
        else:
            self.read(image, target)

    def _of_array(self, value: Any) -> Array:
        array = value if isinstance(value, np.ndarray) else _of_dlpack(value, self.tensor.name)
        if array.dtype != np.uint8:
            raise UsageError(
                f"input {self.tensor.name!r} is {array.dtype} {array.shape}; allowed: uint8"
                f" {self.tensor.shape}, uint8 images (rows, columns, {self.tensor.shape[3]}) of"
                " any size, or the bytes of image files"
            )
        return array


def _copied_to(target: Array | None, array: Array) -> Array:
    if target is None:
        return array
    np.copyto(target, array)
    return target


def _by_name(inputs: tuple[Any, ...], named: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        by_name = {str(name): item for name, item in cast("Mapping[Any, Any]", inputs[0]).items()}
    elif len(inputs) > len(names):
        raise UsageError(f"{len(inputs)} inputs are given; the model has {', '.join(names)}")
    else:
        by_name = dict(zip(names, inputs, strict=False))
    if not named:
        return by_name
    repeated = sorted(by_name.keys() & named.keys())
    if repeated:
        raise UsageError(f"the input {', '.join(repeated)} is given twice")
    return {**by_name, **named}


def _array(value: Any, tensor: Tensor, dtype: np.dtype[Any]) -> Array:
    array = value if isinstance(value, np.ndarray) else _of_dlpack(value, tensor.name)
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


def _of_dlpack(value: Any, name: str) -> Array:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if not callable(getattr(value, "__dlpack__", None)):
        raise UsageError(f"input {name!r} is a {kind}; give a NumPy array, or one with __dlpack__")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"input {name!r}: NumPy cannot read the {kind}: {error}; give a detached copy in host"
            " memory"
        ) from error
