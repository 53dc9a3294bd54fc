"""TensorFlow's convolutions, pools, normalization and resizing, as ONNX operators.

In TensorFlow the channel axis is the last axis; in ONNX it follows the batch axis. Each layer is
imported with a Transpose before it and a Transpose after it. Rewrites remove the two Transposes
between neighbouring layers.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slipstream.infer.importers import moves
from slipstream.infer.importers.step import Rule, Step, Unimportable


def _is_first(step: Step) -> bool:
    """Return whether the channel axis of the TensorFlow op already follows the batch axis."""
    return step.text("data_format", "NHWC").startswith("NC")


def _first(step: Step, name: str) -> str:
    """Return the name of an operand whose channel axis follows the batch axis.

    If the channel axis is elsewhere, add a Transpose.
    """
    rank = len(step.b.shape(name))
    return name if _is_first(step) else moves.transpose(step.b, name, to_first(rank))


def _back(step: Step, name: str) -> str:
    """Return the name of a result whose axes have the order of the TensorFlow op."""
    rank = len(step.b.shape(name))
    return name if _is_first(step) else moves.transpose(step.b, name, to_last(rank))


def to_first(rank: int) -> list[int]:
    """Return the order of axes that moves channels from the last position to the second."""
    return [0, rank - 1, *range(1, rank - 1)]


def to_last(rank: int) -> list[int]:
    """Return the order of axes that moves channels from the second position to the last."""
    return [0, *range(2, rank), 1]


def _inner(step: Step, name: str, rank: int) -> list[int]:
    """Return a parameter such as the strides, without its numbers for batch and channels.

    If the op lacks the parameter, all numbers are 1.
    """
    sizes = [int(size) for size in step.params.get(name) or [1] * rank]
    if _is_first(step):
        return sizes[2:]
    return sizes[1:-1]


def _pads(
    step: Step, sizes: Sequence[int], reaches: Sequence[int], strides: Sequence[int]
) -> list[int]:
    """Return the padding in the form of ONNX: first all beginnings of axes, then all ends.

    If the padding mode is SAME and the padding is odd, the larger half is at the end of the axis.
    """
    mode, rank = step.text("padding"), len(sizes) + 2
    if mode == "EXPLICIT":
        pairs = np.array(step.params["explicit_paddings"]).reshape(rank, 2)
        inner_pairs = pairs[2:] if _is_first(step) else pairs[1:-1]
        return [int(size) for size in inner_pairs.T.reshape(-1)]
    if mode == "VALID":
        return [0] * (2 * len(sizes))
    totals = [
        max((math.ceil(size / stride) - 1) * stride + reach - size, 0)
        for size, reach, stride in zip(sizes, reaches, strides, strict=True)
    ]
    return [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]


def _reaches(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [(size - 1) * gap + 1 for size, gap in zip(kernel, dilations, strict=True)]


# ---- convolutions -----------------------------------------------------------------------------


def _convolution(step: Step) -> str:
    b, x = step.b, _first(step, step.full(0))
    rank = len(b.shape(x))
    weight = moves.transpose(b, step.full(1), [rank - 1, rank - 2, *range(rank - 2)])
    return _back(step, _convolved(step, x, weight, b.shape(x)[1] // b.shape(weight)[1]))


def _depthwise(step: Step) -> str:
    """Convolve channel by channel.

    The filters have the shape (height, width, channels, multiplier).
    """
    b, x = step.b, _first(step, step.full(0))
    height, width, channels, multiplier = b.shape(step.full(1))
    weight = moves.transpose(b, step.full(1), [2, 3, 0, 1])
    weight = moves.reshape(b, weight, [channels * multiplier, 1, height, width])
    return _back(step, _convolved(step, x, weight, channels))


def _convolved(step: Step, x: str, weight: str, group: int) -> str:
    rank = len(step.b.shape(x))
    kernel = list(step.b.shape(weight)[2:])
    strides, dilations = _inner(step, "strides", rank), _inner(step, "dilations", rank)
    pads = _pads(step, step.b.shape(x)[2:], _reaches(kernel, dilations), strides)
    return step.b.add(
        "Conv",
        x,
        weight,
        group=group,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )


def _transposed_convolution(step: Step) -> str:
    """Convert an op such as Conv2DBackpropInput.

    The operands of the op are the sizes of the result, the filters and the input.
    """
    b, x = step.b, _first(step, step.full(2))
    rank = len(b.shape(x))
    weight = moves.transpose(b, step.full(1), [rank - 1, rank - 2, *range(rank - 2)])
    target = [int(size) for size in step.known(0)]
    target = target if len(target) == rank - 2 else target[2:] if _is_first(step) else target[1:-1]
    kernel = list(b.shape(weight)[2:])
    strides, dilations = _inner(step, "strides", rank), _inner(step, "dilations", rank)
    reaches = _reaches(kernel, dilations)
    pads = _pads(step, target, reaches, strides)
    half = len(kernel)
    unpadded = [
        (size - 1) * stride + reach - pads[at] - pads[at + half]
        for at, (size, stride, reach) in enumerate(
            zip(b.shape(x)[2:], strides, reaches, strict=True)
        )
    ]
    missing = [size - reached for size, reached in zip(target, unpadded, strict=True)]
    if min(missing) < 0 or any(
        size >= stride for size, stride in zip(missing, strides, strict=True)
    ):
        raise Unimportable(f"of a result of {target}")
    result = b.add(
        "ConvTranspose",
        x,
        weight,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=missing,
    )
    return _back(step, result)


# ---- pools ------------------------------------------------------------------------------------


def _pool(op: str) -> Rule:
    def rule(step: Step) -> str:
        x = _first(step, step.full(0))
        rank = len(step.b.shape(x))
        kernel, strides = _inner(step, "ksize", rank), _inner(step, "strides", rank)
        pads = _pads(step, step.b.shape(x)[2:], kernel, strides)
        result = step.b.add(op, x, kernel_shape=kernel, strides=strides, pads=pads)
        return _back(step, result)

    return rule


# ---- normalisation ----------------------------------------------------------------------------


def _batch_norm(step: Step) -> list[str]:
    if step.params.get("is_training", True):
        raise Unimportable("in training mode")
    x, scale, shift, mean, variance = (step.full(at) for at in range(5))
    epsilon = float(step.params["epsilon"])
    first = _first(step, x)
    y = step.b.add("BatchNormalization", first, scale, shift, mean, variance, epsilon=epsilon)
    return [_back(step, y), mean, variance, mean, variance, mean][: step.num_results]


def _local_response(step: Step) -> str:
    p, b = step.params, step.b
    size = 2 * int(p["depth_radius"]) + 1
    x = moves.transpose(b, step.full(0), to_first(4))
    y = b.add(
        "LRN",
        x,
        size=size,
        alpha=float(p["alpha"]) * size,
        beta=float(p["beta"]),
        bias=float(p["bias"]),
    )
    return moves.transpose(b, y, to_last(4))


# ---- sizes ------------------------------------------------------------------------------------


def _resized(mode: str) -> Rule:
    def rule(step: Step) -> str:
        b = step.b
        x = moves.transpose(b, moves.cast(b, step.full(0), np.float32), to_first(4))
        sizes = [*b.shape(x)[:2], *(int(size) for size in step.known(1))]
        corners, centres = step.params["align_corners"], step.params["half_pixel_centers"]
        coordinates = "align_corners" if corners else "half_pixel" if centres else "asymmetric"
        rounding = "round_prefer_ceil" if corners or centres else "floor"
        y = b.add(
            "Resize",
            x,
            "",
            "",
            moves.numbers(b, "sizes", sizes),
            mode=mode,
            coordinate_transformation_mode=coordinates,
            nearest_mode=rounding,
        )
        return moves.transpose(b, y, to_last(4))

    return rule


def _rearranged(op: str) -> Rule:
    def rule(step: Step) -> str:
        x = _first(step, step.full(0))
        return _back(step, step.b.add(op, x, blocksize=int(step.params["block_size"])))

    return rule


def _space_to_batch(step: Step) -> str:
    """Split each image into several smaller images.

    Each of the smaller images consists of every n-th row and every n-th column of the image.
    """
    b, blocks = step.b, [int(size) for size in step.known(1)]
    count = len(blocks)
    pads = step.known(2).astype(int)
    num_rest = len(step.operands[0].shape) - 1 - count
    low, high = [0, *pads[:, 0], *[0] * num_rest], [0, *pads[:, 1], *[0] * num_rest]
    x = moves.pad(b, step.full(0), low, high)
    batch, *sizes = b.shape(x)
    shape = [batch]
    for size, block in zip(sizes, blocks, strict=False):
        shape += [size // block, block]
    x = moves.reshape(b, x, [*shape, *sizes[count:]])
    outer, inner = [1 + 2 * at for at in range(count)], [2 + 2 * at for at in range(count)]
    last = range(1 + 2 * count, 1 + 2 * count + num_rest)
    x = moves.transpose(b, x, [*inner, 0, *outer, *last])
    parts = [size // block for size, block in zip(sizes, blocks, strict=False)]
    return moves.reshape(b, x, [batch * math.prod(blocks), *parts, *sizes[count:]])


def _batch_to_space(step: Step) -> str:
    """Merge several smaller images into one image.

    Each of the smaller images becomes every n-th row and every n-th column of the result.
    """
    b, blocks = step.b, [int(size) for size in step.known(1)]
    count = len(blocks)
    crops = step.known(2).astype(int)
    batch, *sizes = step.operands[0].shape
    batch //= math.prod(blocks)
    x = moves.reshape(b, step.full(0), [*blocks, batch, *sizes])
    order = [count]
    for at in range(count):
        order += [count + 1 + at, at]
    x = moves.transpose(b, x, [*order, *range(2 * count + 1, count + 1 + len(sizes))])
    full_sizes = [size * block for size, block in zip(sizes, blocks, strict=False)]
    x = moves.reshape(b, x, [batch, *full_sizes, *sizes[count:]])
    ends = [size - int(crop) for size, crop in zip(full_sizes, crops[:, 1], strict=True)]
    return moves.cut(
        b,
        x,
        [0, *(int(crop) for crop in crops[:, 0]), *(0 for _ in sizes[count:])],
        [batch, *ends, *sizes[count:]],
    )


CONVOLUTIONS: dict[str, Rule] = {
    **dict.fromkeys(("Conv2D", "Conv3D"), _convolution),
    **dict.fromkeys(
        ("Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2"),
        _transposed_convolution,
    ),
    "DepthwiseConv2dNative": _depthwise,
}

LAYERS: dict[str, Rule] = {
    **CONVOLUTIONS,
    **dict.fromkeys(("AvgPool", "AvgPool3D"), _pool("AveragePool")),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _batch_norm),
    **dict.fromkeys(("MaxPool", "MaxPool3D"), _pool("MaxPool")),
    "BatchToSpaceND": _batch_to_space,
    "DepthToSpace": _rearranged("DepthToSpace"),
    "LRN": _local_response,
    "ResizeBilinear": _resized("linear"),
    "ResizeNearestNeighbor": _resized("nearest"),
    "SpaceToBatchND": _space_to_batch,
    "SpaceToDepth": _rearranged("SpaceToDepth"),
}
