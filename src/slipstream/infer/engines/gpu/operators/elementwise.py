"""Operators that compute each element from the elements at the same place."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from onnx import helper

from slipstream.infer.engines.gpu.operators.node_call import NodeCall, Operator


def _unary(function: Callable[[Any], Any]) -> Operator:
    return lambda call: function(call.first)


def _binary(function: Callable[[Any, Any], Any]) -> Operator:
    return lambda call: function(call.input(0), call.input(1))


def _folded(function: Callable[[Any, Any], Any]) -> Operator:
    """Return an operator of any number of inputs."""
    return lambda call: functools.reduce(function, call.inputs)


def _divided(call: NodeCall) -> Any:
    rounding = None if call.is_float else "trunc"
    return torch.div(call.input(0), call.input(1), rounding_mode=rounding)


def _remainder(call: NodeCall) -> Any:
    function = torch.fmod if call.node.get("fmod", 0) else torch.remainder
    return function(call.input(0), call.input(1))


def _power(call: NodeCall) -> Any:
    return torch.pow(call.input(0), call.input(1)).to(call.dtype())


def _mean(call: NodeCall) -> Any:
    return functools.reduce(torch.add, call.inputs) / len(call.inputs)


def _clip(call: NodeCall) -> Any:
    """Clamp to bounds that are inputs or, in older opsets, attributes."""
    low = call.input(1) if call.has(1) else call.node.get("min")
    high = call.input(2) if call.has(2) else call.node.get("max")
    if low is None and high is None:
        return call.first
    return torch.clamp(call.first, low, high)


def _cast(call: NodeCall) -> Any:
    dtype = helper.tensor_dtype_to_np_dtype(call.node.get("to"))
    if dtype.kind in "OSU":
        raise call.refuse("it has no strings")
    return call.first.to(call.computed(dtype))


def _dropped(call: NodeCall) -> Any:
    if any(call.node.outputs[1:]):
        raise call.refuse("the mask is not")
    return call.first


def _hard_sigmoid(call: NodeCall) -> Any:
    alpha, beta = call.node.get("alpha", 0.2), call.node.get("beta", 0.5)
    return torch.clamp(call.first * alpha + beta, 0.0, 1.0)


def _prelu(call: NodeCall) -> Any:
    return torch.where(call.first < 0, call.first * call.input(1), call.first)


def _elu(call: NodeCall) -> Any:
    return F.elu(call.first, alpha=call.node.get("alpha", 1.0))


def _celu(call: NodeCall) -> Any:
    return F.celu(call.first, alpha=call.node.get("alpha", 1.0))


def _selu(call: NodeCall) -> Any:
    x, alpha = call.first, call.node.get("alpha", 1.6732631921768188)
    gamma = call.node.get("gamma", 1.0507010221481323)
    return gamma * torch.where(x > 0, x, alpha * (torch.exp(x) - 1))


def _leaky_relu(call: NodeCall) -> Any:
    return F.leaky_relu(call.first, call.node.get("alpha", 0.01))


def _gelu(call: NodeCall) -> Any:
    return F.gelu(call.first, approximate=call.node.get("approximate", "none"))


ELEMENTWISE: dict[str, Operator] = {
    "Abs": _unary(torch.abs),
    "Add": _binary(torch.add),
    "And": _binary(torch.logical_and),
    "Cast": _cast,
    "Ceil": _unary(torch.ceil),
    "Celu": _celu,
    "Clip": _clip,
    "Cos": _unary(torch.cos),
    "Div": _divided,
    "Dropout": _dropped,
    "Elu": _elu,
    "Equal": _binary(torch.eq),
    "Erf": _unary(torch.erf),
    "Exp": _unary(torch.exp),
    "Floor": _unary(torch.floor),
    "slipstream.Gelu": _gelu,
    "Greater": _binary(torch.gt),
    "GreaterOrEqual": _binary(torch.ge),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _unary(F.hardswish),
    "Identity": _unary(lambda x: x),
    "slipstream.InverseRoot": _unary(torch.rsqrt),
    "IsNaN": _unary(torch.isnan),
    "LeakyRelu": _leaky_relu,
    "Less": _binary(torch.lt),
    "LessOrEqual": _binary(torch.le),
    "Log": _unary(torch.log),
    "Max": _folded(torch.maximum),
    "Mean": _mean,
    "Min": _folded(torch.minimum),
    "Mish": _unary(F.mish),
    "Mod": _remainder,
    "Mul": _binary(torch.mul),
    "Neg": _unary(torch.neg),
    "Not": _unary(torch.logical_not),
    "Or": _binary(torch.logical_or),
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": _unary(torch.reciprocal),
    "Relu": _unary(torch.relu),
    "Round": _unary(torch.round),
    "Selu": _selu,
    "Sigmoid": _unary(torch.sigmoid),
    "Sign": _unary(torch.sign),
    "slipstream.Silu": _unary(F.silu),
    "Sin": _unary(torch.sin),
    "Softplus": _unary(F.softplus),
    "Softsign": _unary(F.softsign),
    "Sqrt": _unary(torch.sqrt),
    "Sub": _binary(torch.sub),
    "Sum": _folded(torch.add),
    "Tanh": _unary(torch.tanh),
    "Where": lambda call: torch.where(call.input(0), call.input(1), call.input(2)),
    "Xor": _binary(torch.logical_xor),
}
