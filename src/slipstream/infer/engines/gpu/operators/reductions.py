"""Pooling, reductions over axes, softmax, and the search for the largest elements."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from slipstream.infer.engines.gpu.operators.node_call import NodeCall, Operator
from slipstream.infer.engines.gpu.operators.windows import WindowSizes, padded, window

MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _max_pool(call: NodeCall) -> Any:
    if len(call.node.outputs) > 1 and call.node.outputs[1]:
        raise call.refuse("the places of the maxima are not")
    sizes = window(call, call.node.get("kernel_shape"))
    x, padding = padded(call, sizes, -math.inf)
    _check_rounding(call, sizes, padding)
    return MAXIMA[sizes.rank](
        x,
        sizes.kernel,
        stride=sizes.strides,
        padding=padding,
        dilation=sizes.dilations,
        ceil_mode=bool(call.node.get("ceil_mode", 0)),
    )


def _average_pool(call: NodeCall) -> Any:
    sizes = window(call, call.node.get("kernel_shape"))
    counts_padding = bool(call.node.get("count_include_pad", 0))
    x, padding = padded(call, sizes, 0.0)
    _check_rounding(call, sizes, padding)
    is_left = padding == sizes.begins == sizes.ends
    if not (is_left or counts_padding) or set(sizes.dilations) != {1}:
        raise call.refuse("its padding is not the same on both sides, or it has a dilation")
    return MEANS[sizes.rank](
        x,
        sizes.kernel,
        stride=sizes.strides,
        padding=padding,
        ceil_mode=bool(call.node.get("ceil_mode", 0)),
        count_include_pad=counts_padding,
    )


def _check_rounding(call: NodeCall, sizes: WindowSizes, padding: tuple[int, ...]) -> None:
    """Refuse padding that PyTorch takes for pixels, in which a last window may begin."""
    if call.node.get("ceil_mode", 0) and not padding == sizes.begins == sizes.ends:
        raise call.refuse("its padding differs from side to side, and its sizes are rounded up")


def _over_image(function: Callable[..., Any]) -> Operator:
    def operator(call: NodeCall) -> Any:
        return function(call.first, list(range(2, len(call.shape(0)))), keepdim=True)

    return operator


def _reduced(function: Callable[..., Any], *, has_fractions: bool = False) -> Operator:
    """Return the operator of a function of a tensor, axes and `keepdim`.

    Args:
        function: Function that computes the reduction.
        has_fractions: Whether results of integers have fractions (default False). ONNX wants
            integers of the same dtype, so the fractions are computed in float64 and cut off.
    """

    def operator(call: NodeCall) -> Any:
        axes = call.numbers(1, "axes")
        if not axes and call.node.get("noop_with_empty_axes", 0):
            return call.first
        axes = axes or list(range(len(call.shape(0))))
        x = call.first.to(torch.float64) if has_fractions and not call.is_float else call.first
        if not call.shape(0):
            return function(x.reshape(1), [0], keepdim=False).to(call.dtype())
        result = function(x, axes, keepdim=bool(call.node.get("keepdims", 1)))
        return result.to(call.dtype())

    return operator


def _sum(x: Any, axes: list[int], *, keepdim: bool) -> Any:
    return torch.sum(x, axes, keepdim=keepdim, dtype=x.dtype)


def _magnitude(x: Any, axes: list[int], *, keepdim: bool) -> Any:
    return _sum(torch.abs(x), axes, keepdim=keepdim)


def _square(x: Any, axes: list[int], *, keepdim: bool) -> Any:
    return _sum(x * x, axes, keepdim=keepdim)


def _length(x: Any, axes: list[int], *, keepdim: bool) -> Any:
    return torch.sqrt(_square(x, axes, keepdim=keepdim))


def _one_axis(function: Callable[..., Any]) -> Operator:
    """Return a reduction by a function that takes one axis only."""

    def operator(call: NodeCall) -> Any:
        rank = len(call.shape(0))
        axes = [axis % rank for axis in call.numbers(1, "axes") or range(rank)]
        result = call.first
        for axis in sorted(axes, reverse=True):
            result = function(result, axis, keepdim=bool(call.node.get("keepdims", 1)))
        return result.to(call.dtype())  # PyTorch multiplies integers in int64

    return operator


def _extreme(function: Callable[..., Any]) -> Operator:
    def operator(call: NodeCall) -> Any:
        if call.node.get("select_last_index", 0):
            raise call.refuse("the last of equal elements is not found")
        return function(call.first, call.axis(), keepdim=bool(call.node.get("keepdims", 1)))

    return operator


def _softmax(function: Callable[..., Any]) -> Operator:
    def operator(call: NodeCall) -> Any:
        if call.opset >= 13:
            return function(call.first, dim=call.axis(-1))
        shape, axis = call.shape(0), call.axis(1)
        flat = call.first.reshape(math.prod(shape[:axis]), -1)
        return function(flat, dim=-1).reshape(shape)

    return operator


def _top_k(call: NodeCall) -> Any:
    (count,) = call.numbers(1) or [0]
    largest, is_sorted = bool(call.node.get("largest", 1)), bool(call.node.get("sorted", 1))
    values, places = torch.topk(call.first, count, call.axis(-1), largest, is_sorted)
    return values, places


def _running_sum(call: NodeCall) -> Any:
    (axis,) = call.numbers(1) or [0]
    if call.node.get("exclusive", 0) or call.node.get("reverse", 0):
        raise call.refuse("it is exclusive or reversed")
    return torch.cumsum(call.first, axis, dtype=call.dtype())


REDUCTIONS: dict[str, Operator] = {
    "ArgMax": _extreme(torch.argmax),
    "ArgMin": _extreme(torch.argmin),
    "AveragePool": _average_pool,
    "CumSum": _running_sum,
    "GlobalAveragePool": _over_image(torch.mean),
    "GlobalMaxPool": _over_image(torch.amax),
    "LogSoftmax": _softmax(F.log_softmax),
    "MaxPool": _max_pool,
    "ReduceL1": _reduced(_magnitude),
    "ReduceL2": _reduced(_length, has_fractions=True),
    "ReduceLogSumExp": _reduced(torch.logsumexp, has_fractions=True),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean, has_fractions=True),
    "ReduceMin": _reduced(torch.amin),
    "ReduceProd": _one_axis(torch.prod),
    "ReduceSum": _reduced(_sum),
    "ReduceSumSquare": _reduced(_square),
    "Softmax": _softmax(F.softmax),
    "TopK": _top_k,
}
