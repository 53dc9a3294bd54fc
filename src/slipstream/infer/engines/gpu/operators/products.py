"""Convolutions, matrix products, attention, and the normalisations between them."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from slipstream.infer.engines.gpu.operators.node_call import NodeCall, Operator
from slipstream.infer.engines.gpu.operators.windows import padded, window

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _convolution(call: NodeCall) -> Any:
    sizes = window(call, call.shape(1)[2:])
    x, padding = padded(call, sizes, 0.0)
    return CONVOLUTIONS[sizes.rank](
        x,
        call.input(1),
        call.input(2),
        stride=sizes.strides,
        padding=padding,
        dilation=sizes.dilations,
        groups=call.node.get("group", 1),
    )


def _transposed(call: NodeCall) -> Any:
    """Compute the uncropped result, and crop it to the size that the padding leaves."""
    sizes = window(call, call.shape(1)[2:])
    result = TRANSPOSED[sizes.rank](
        call.first,
        call.input(1),
        call.input(2),
        stride=sizes.strides,
        dilation=sizes.dilations,
        output_padding=call.node.get("output_padding", [0] * sizes.rank),
        groups=call.node.get("group", 1),
    )
    for axis, length in enumerate(call.output_shape[2:]):
        result = result.narrow(axis + 2, sizes.begins[axis], length)
    return result


def _gemm(call: NodeCall) -> Any:
    a = call.input(0).t() if call.node.get("transA", 0) else call.input(0)
    b = call.input(1).t() if call.node.get("transB", 0) else call.input(1)
    alpha, beta = call.node.get("alpha", 1.0), call.node.get("beta", 1.0)
    product = torch.matmul(a, b) * alpha if alpha != 1.0 else torch.matmul(a, b)
    if not call.has(2):
        return product
    return product + (call.input(2) * beta if beta != 1.0 else call.input(2))


def _linear(call: NodeCall) -> Any:
    product = torch.matmul(call.input(0), call.input(1))
    return product + call.input(2) if call.has(2) else product


def _attention(call: NodeCall) -> Any:
    """Compute attention of query, key and value (batch, length, heads x width)."""
    heads = call.node.get("heads")
    query, key, value = (_by_heads(call, at, heads) for at in range(3))
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=call.input(3), scale=call.node.get("scale")
    )
    batch, length, _ = call.shape(0)
    return mixed.transpose(1, 2).reshape(batch, length, -1)


def _by_heads(call: NodeCall, at: int, heads: int) -> Any:
    batch, length, width = call.shape(at)
    return call.input(at).reshape(batch, length, heads, width // heads).transpose(1, 2)


def _einsum(call: NodeCall) -> Any:
    return torch.einsum(call.node.get("equation"), *call.inputs)


def _batch_norm(call: NodeCall) -> Any:
    if call.node.get("training_mode", 0):
        raise call.refuse("it is in training mode")
    scale, bias, mean, variance = (call.input(at) for at in range(1, 5))
    epsilon = call.node.get("epsilon", 1e-5)
    return F.batch_norm(call.first, mean, variance, scale, bias, eps=epsilon)


def _layer_norm(call: NodeCall) -> Any:
    if len(call.node.outputs) > 1 and any(call.node.outputs[1:]):
        raise call.refuse("only its first result is")
    over = call.shape(0)[call.axis(-1) :]
    scale = call.input(1).expand(over)
    bias = call.input(2).expand(over) if call.has(2) else None
    return F.layer_norm(call.first, over, scale, bias, call.node.get("epsilon", 1e-5))


def _rms_norm(call: NodeCall) -> Any:
    """Compute the mean square in float32, because squares overflow float16."""
    axes, x = list(range(call.node.get("axis"), 0)), call.first
    wide = x.to(torch.float32)
    root = torch.rsqrt((wide * wide).mean(axes, keepdim=True) + call.node.get("epsilon"))
    return (wide * root).to(call.dtype()) * call.input(1)


def _instance_norm(call: NodeCall) -> Any:
    epsilon = call.node.get("epsilon", 1e-5)
    return F.instance_norm(call.first, weight=call.input(1), bias=call.input(2), eps=epsilon)


def _group_norm(call: NodeCall) -> Any:
    if call.opset < 21:
        raise call.refuse("older opsets have a scale for each group, newer ones for each channel")
    groups, epsilon = call.node.get("num_groups"), call.node.get("epsilon", 1e-5)
    return F.group_norm(call.first, groups, call.input(1), call.input(2), epsilon)


def _response_norm(call: NodeCall) -> Any:
    return F.local_response_norm(
        call.first,
        call.node.get("size"),
        alpha=call.node.get("alpha", 1e-4),
        beta=call.node.get("beta", 0.75),
        k=call.node.get("bias", 1.0),
    )


PRODUCTS: dict[str, Operator] = {
    "slipstream.Attention": _attention,
    "BatchNormalization": _batch_norm,
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _response_norm,
    "LayerNormalization": _layer_norm,
    "slipstream.Linear": _linear,
    "MatMul": lambda call: torch.matmul(call.input(0), call.input(1)),
    "slipstream.RmsNorm": _rms_norm,
}
