"""Operators that move, select or repeat elements."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from slipstream.infer.engines.gpu.operators.node_call import NodeCall, Operator

INTERPOLATIONS = {
    "nearest": {1: "nearest", 2: "nearest", 3: "nearest"},
    "linear": {1: "linear", 2: "bilinear", 3: "trilinear"},
    "cubic": {2: "bicubic"},
}
PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _reshaped(call: NodeCall) -> Any:
    return call.first.reshape(call.output_shape)


def _transposed(call: NodeCall) -> Any:
    rank = len(call.shape(0))
    return call.first.permute(call.node.get("perm", list(reversed(range(rank)))))


def _joined(call: NodeCall) -> Any:
    return torch.cat(call.inputs, dim=call.axis())


def _divided(call: NodeCall) -> Any:
    axis, sizes = call.axis(), call.numbers(1, "split")
    if sizes is None:
        sizes = [call.graph.shape(name) for name in call.node.outputs]
        sizes = [shape[axis] if shape else 0 for shape in sizes]
    return torch.split(call.first, sizes, dim=axis)


def _sliced(call: NodeCall) -> Any:
    shape, x = call.shape(0), call.first
    starts, ends = call.numbers(1, "starts") or [], call.numbers(2, "ends") or []
    axes = call.numbers(3, "axes") or list(range(len(starts)))
    strides = call.numbers(4) or [1] * len(starts)
    for start, end, axis, stride in zip(starts, ends, axes, strides, strict=True):
        begin, stop, by = slice(start, end, stride).indices(shape[axis])
        if by > 0:
            count = len(range(begin, stop, by))
            x = torch.narrow(x, axis, begin if count else 0, max(stop - begin, 0))
            x = x if by == 1 else x[_along(axis % len(shape), by)]
        else:
            x = torch.index_select(x, axis, _places(call, range(begin, stop, by)))
    return x


def _along(axis: int, by: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(None, None, by))


def _places(call: NodeCall, numbers: range) -> Any:
    """Return a constant vector of positions on the device of the first input."""
    return torch.tensor(list(numbers), dtype=torch.int64, device=call.first.device)


def _gathered(call: NodeCall) -> Any:
    """Select positions along an axis; negative positions count from the end."""
    axis, places, shape = call.axis(), call.input(1), call.shape(0)
    indices = call.graph.constants.get(call.node.inputs[1])
    if indices is not None and indices.ndim == 0:
        return torch.select(call.first, axis, int(indices))
    places = torch.where(places < 0, places + shape[axis], places).to(torch.int64)
    flat = torch.index_select(call.first, axis, places.reshape(-1))
    return flat.reshape(call.output_shape)


def _gathered_elements(call: NodeCall) -> Any:
    axis, places = call.axis(), call.input(1).to(torch.int64)
    places = torch.where(places < 0, places + call.shape(0)[axis], places)
    return torch.gather(call.first, axis, places)


def _tiled(call: NodeCall) -> Any:
    return torch.tile(call.first, call.numbers(1) or [])


def _padded(call: NodeCall) -> Any:
    rank = len(call.shape(0))
    pads, axes = call.numbers(1, "pads") or [], call.numbers(3) or list(range(rank))
    mode = call.node.get("mode", "constant")
    by_axis = {axis % rank: (pads[at], pads[at + len(axes)]) for at, axis in enumerate(axes)}
    pairs = [by_axis.get(axis, (0, 0)) for axis in reversed(range(rank))]
    while mode != "constant" and len(pairs) > 1 and pairs[-1] == (0, 0) and len(pairs) > rank - 2:
        pairs.pop()  # PyTorch pads at most the dimensions of an image in these modes
    flat = [number for pair in pairs for number in pair]
    if mode == "constant":
        value = call.constant(2) if call.has(2) else call.node.get("value", 0.0)
        number = np.asarray(value).reshape(-1)[0].item()
        return F.pad(call.first, flat, value=number)
    return F.pad(call.first, flat, mode=PAD_MODES[mode])


def _resized(call: NodeCall) -> Any:
    """Scale images in the cases in which PyTorch computes what ONNX defines."""
    mode, target = call.node.get("mode", "nearest"), call.output_shape
    places = call.node.get("coordinate_transformation_mode", "half_pixel")
    method = INTERPOLATIONS[mode].get(len(target) - 2)
    is_known = _is_nearest(call, places) if mode == "nearest" else _is_smooth(call, places)
    if method is None or not is_known or not _has_exact_scales(call):
        raise call.refuse(f"the mode {mode} with {places} and these sizes")
    corners = None if mode == "nearest" else places == "align_corners"
    return F.interpolate(call.first, size=target[2:], mode=method, align_corners=corners)


def _is_nearest(call: NodeCall, places: str) -> bool:
    rounding = call.node.get("nearest_mode", "round_prefer_floor")
    if places == "asymmetric" and rounding == "floor":
        return True
    pairs = zip(call.output_shape, call.shape(0), strict=True)
    rounds = rounding in ("round_prefer_floor", "round_prefer_ceil")
    return rounds and places == "half_pixel" and all(big % small == 0 for big, small in pairs)


def _is_smooth(call: NodeCall, places: str) -> bool:
    if call.node.get("mode") == "cubic" and (
        call.node.get("exclude_outside", 0) or call.node.get("cubic_coeff_a", -0.75) != -0.75
    ):
        return False
    if places == "pytorch_half_pixel":  # which treats images of one pixel in another way
        return 1 not in call.output_shape[2:]
    return places in ("half_pixel", "align_corners")


def _has_exact_scales(call: NodeCall) -> bool:
    """Return whether the sizes are the scales that PyTorch computes from them."""
    shape, target = call.shape(0), call.output_shape
    scales = call.constant(2) if call.has(2) else None
    is_exact = scales is None or scales.size == 0 or np.allclose(scales * shape, target)
    return is_exact and not call.node.get("antialias", 0) and shape[:2] == target[:2]


def _depth_to_space(call: NodeCall) -> Any:
    block, (n, channels, height, width) = call.node.get("blocksize"), call.shape(0)
    inner = channels // block**2
    if call.node.get("mode", "DCR") == "CRD":
        x = call.first.reshape(n, inner, block, block, height, width)
        return x.permute(0, 1, 4, 2, 5, 3).reshape(call.output_shape)
    x = call.first.reshape(n, block, block, inner, height, width)
    return x.permute(0, 3, 4, 1, 5, 2).reshape(call.output_shape)


def _space_to_depth(call: NodeCall) -> Any:
    block, (n, channels, height, width) = call.node.get("blocksize"), call.shape(0)
    x = call.first.reshape(n, channels, height // block, block, width // block, block)
    return x.permute(0, 3, 5, 1, 2, 4).reshape(call.output_shape)


def _triangle(call: NodeCall) -> Any:
    (diagonal,) = call.numbers(1) or [0]
    function = torch.triu if call.node.get("upper", 1) else torch.tril
    return function(call.first, diagonal)


SHAPES: dict[str, Operator] = {
    "Concat": _joined,
    "DepthToSpace": _depth_to_space,
    "Expand": lambda call: call.first.expand(call.output_shape),
    "Flatten": _reshaped,
    "Gather": _gathered,
    "GatherElements": _gathered_elements,
    "Pad": _padded,
    "Reshape": _reshaped,
    "Resize": _resized,
    "Slice": _sliced,
    "SpaceToDepth": _space_to_depth,
    "Split": _divided,
    "Squeeze": _reshaped,
    "Tile": _tiled,
    "Transpose": _transposed,
    "Trilu": _triangle,
    "Unsqueeze": _reshaped,
}
