"""JAX's matrix products, convolutions and window reductions, with any order of axes."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slipstream.infer.importers import moves
from slipstream.infer.importers.products import contracted
from slipstream.infer.importers.step import Rule, Step, Unimportable

# ---- matrices ---------------------------------------------------------------------------------


def _product(step: Step) -> str:
    """Compute dot_general: multiply two operands, and sum over pairs of their axes."""
    contract, batch = step.params["dimension_numbers"]
    is_integer = step.dtype.kind in "iub"
    is_large = step.dtype.name in ("uint32", "int64", "uint64")
    kind = np.float32 if not is_integer else np.int64 if is_large else np.int32
    left, right = (moves.cast(step.b, step.full(at), kind) for at in (0, 1))
    pairs = (list(zip(*axes, strict=True)) for axes in (contract, batch))
    return contracted(step.b, left, right, *pairs)


# ---- convolutions -----------------------------------------------------------------------------


def _convolution(step: Step) -> str:
    p, b = step.params, step.b
    numbers = p["dimension_numbers"]
    if int(p["batch_group_count"]) != 1:
        raise Unimportable("with batch_group_count")
    if step.dtype.kind != "f":
        raise Unimportable(f"of {step.dtype}")
    x = moves.cast(b, moves.transpose(b, step.full(0), numbers.lhs_spec), np.float32)
    weight = moves.cast(b, moves.transpose(b, step.full(1), numbers.rhs_spec), np.float32)
    holes = [int(size) - 1 for size in p["lhs_dilation"]]
    pads = [(int(low), int(high)) for low, high in p["padding"]]
    if _is_transposed(step, b.shape(weight)[2:]):
        result = _transposed_convolution(step, x, weight, pads)
    else:
        x = moves.spread(b, x, [0, 0, *holes])
        result = _plain_convolution(step, x, weight, pads)
    return moves.transpose(b, result, moves.inverse(numbers.out_spec))


def _plain_convolution(step: Step, x: str, weight: str, pads: list[tuple[int, int]]) -> str:
    low, high = (list(sizes) for sizes in zip(*pads, strict=True))
    if min(*low, *high) < 0:
        x = moves.pad(
            step.b,
            x,
            [0, 0, *(min(size, 0) for size in low)],
            [0, 0, *(min(size, 0) for size in high)],
        )
    return step.b.add(
        "Conv",
        x,
        weight,
        group=int(step.params["feature_group_count"]),
        strides=[int(size) for size in step.params["window_strides"]],
        dilations=[int(size) for size in step.params["rhs_dilation"]],
        pads=[max(size, 0) for size in (*low, *high)],
        kernel_shape=list(step.b.shape(weight)[2:]),
    )


def _reaches(step: Step, kernel: Sequence[int]) -> list[int]:
    """Return, for each axis, the distance from a kernel's first element to its last element."""
    dilations = step.params["rhs_dilation"]
    return [(size - 1) * int(step) for size, step in zip(kernel, dilations, strict=True)]


def _is_transposed(step: Step, kernel: Sequence[int]) -> bool:
    """Return whether ConvTranspose can compute the convolution.

    ConvTranspose needs an input whose elements are spread (lhs_dilation), strides of 1, and a
    padding that is smaller than the kernel.
    """
    p = step.params
    fits = all(
        max(pads) <= reach for pads, reach in zip(p["padding"], _reaches(step, kernel), strict=True)
    )
    is_apart = any(int(size) > 1 for size in p["lhs_dilation"])
    return is_apart and fits and all(int(size) == 1 for size in p["window_strides"])


def _transposed_convolution(step: Step, x: str, weight: str, pads: list[tuple[int, int]]) -> str:
    """Use ConvTranspose for a convolution whose input elements are spread (lhs_dilation)."""
    b, group = step.b, int(step.params["feature_group_count"])
    outs, ins, *kernel = b.shape(weight)
    axes = list(range(2, 2 + len(kernel)))
    weight = moves.flip(b, weight, axes)
    weight = moves.reshape(b, weight, [group, outs // group, ins, *kernel])
    weight = moves.transpose(b, weight, [0, 2, 1, *(axis + 1 for axis in axes)])
    weight = moves.reshape(b, weight, [group * ins, outs // group, *kernel])
    reaches = _reaches(step, kernel)
    low = [reach - pad[0] for reach, pad in zip(reaches, pads, strict=True)]
    high = [reach - pad[1] for reach, pad in zip(reaches, pads, strict=True)]
    return b.add(
        "ConvTranspose",
        x,
        weight,
        group=group,
        strides=[int(size) for size in step.params["lhs_dilation"]],
        dilations=[int(size) for size in step.params["rhs_dilation"]],
        pads=[*low, *high],
        kernel_shape=kernel,
    )


# ---- windows ----------------------------------------------------------------------------------


class _Windows:
    """A reduction over windows; the axes are in the order of ONNX's pooling operators."""

    def __init__(self, step: Step) -> None:
        p = step.params
        if any(int(size) != 1 for size in p["base_dilation"]):
            raise Unimportable("with base_dilation")
        if step.dtype.kind != "f":
            raise Unimportable(f"of {step.dtype}")
        sizes = [int(size) for size in p["window_dimensions"]]
        strides = [int(size) for size in p["window_strides"]]
        pads = [(int(low), int(high)) for low, high in p["padding"]]
        self._b = step.b
        self._shape = step.shape
        self.inner = [
            axis
            for axis in range(len(sizes))
            if (sizes[axis], strides[axis], pads[axis]) != (1, 1, (0, 0))
        ] or [len(sizes) - 1]
        if len(self.inner) > 3:
            raise Unimportable(f"over {len(self.inner)} axes")
        self.outer = [axis for axis in range(len(sizes)) if axis not in self.inner]
        self.sizes = [sizes[axis] for axis in self.inner]
        self.strides = [strides[axis] for axis in self.inner]
        self.pads = [pads[axis] for axis in self.inner]
        self.dilations = [int(p["window_dilation"][axis]) for axis in self.inner]

    def attributes(self) -> dict[str, list[int]]:
        """Return the attributes of a pooling operator whose input is already padded."""
        return {"kernel_shape": self.sizes, "strides": self.strides}

    def arranged(self, name: str, filling: str | None) -> str:
        """Return the padded operand, in the shape (batch, channels, ...)."""
        b = self._b
        name = moves.transpose(b, name, [*self.outer, *self.inner])
        shape = b.shape(name)
        if len(self.outer) != 2:
            count = math.prod(shape[: len(self.outer)])
            name = moves.reshape(b, name, [count, 1, *shape[len(self.outer) :]])
        if any(max(pads) > 0 or min(pads) < 0 for pads in self.pads):
            low, high = zip((0, 0), (0, 0), *self.pads, strict=True)
            name = moves.pad(b, name, low, high, filling)
        return name

    def restored(self, name: str) -> str:
        """Return a pooling operator's result in the axis order of the original operand."""
        order = [*self.outer, *self.inner]
        name = moves.reshape(self._b, name, [self._shape[axis] for axis in order])
        return moves.transpose(self._b, name, moves.inverse(order))


def _largest(step: Step) -> str:
    windows = _Windows(step)
    x = moves.cast(step.b, step.full(0), np.float32)
    return windows.restored(_max_pool(step, windows, x))


def _least(step: Step) -> str:
    windows = _Windows(step)
    x = step.b.add("Neg", moves.cast(step.b, step.full(0), np.float32))
    return windows.restored(step.b.add("Neg", _max_pool(step, windows, x)))


def _max_pool(step: Step, windows: _Windows, x: str) -> str:
    reaches = [
        (size - 1) * step for size, step in zip(windows.sizes, windows.dilations, strict=True)
    ]
    attributes: dict[str, list[int]] = {**windows.attributes(), "dilations": windows.dilations}
    fits = all(
        min(pads) >= 0 and max(pads) < size
        for pads, size in zip(windows.pads, windows.sizes, strict=True)
    )
    if fits and reaches:
        low, high = zip(*windows.pads, strict=True)
        windows.pads = [(0, 0) for _ in low]
        attributes["pads"] = [*low, *high]
    arranged = windows.arranged(x, moves.scalar(step.b, -math.inf))
    return step.b.add("MaxPool", arranged, **attributes)


def _summed(step: Step) -> str:
    """Sum each window: mean times size, or a convolution with ones if windows are dilated."""
    windows, b = _Windows(step), step.b
    x = windows.arranged(moves.cast(b, step.full(0), np.float32), None)
    if any(step != 1 for step in windows.dilations):
        shape = b.shape(x)
        x = moves.reshape(b, x, [shape[0] * shape[1], 1, *shape[2:]])
        ones = b.constant("ones", np.ones((1, 1, *windows.sizes), np.float32))
        attributes = {**windows.attributes(), "dilations": windows.dilations}
        return windows.restored(b.add("Conv", x, ones, **attributes))
    mean = b.add("AveragePool", x, **windows.attributes())
    count = moves.scalar(b, math.prod(windows.sizes))
    return windows.restored(b.add("Mul", mean, count))


PRODUCTS: dict[str, Rule] = {
    "conv_general_dilated": _convolution,
    "dot_general": _product,
    "reduce_window_max": _largest,
    "reduce_window_min": _least,
    "reduce_window_sum": _summed,
}
