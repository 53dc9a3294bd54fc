"""Layers that treat every element separately: activations and arithmetic."""

from __future__ import annotations

import math

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.caffe.network import CaffeLayer
from slipstream.infer.importers.moves import axis_of, cast

OPERATIONS = ("SUM", "PROD", "MAX")  # operations of Eltwise; the first is the default
NUMBERS = ("PROD", "SUM", "MAX")  # operations of Eltwise by their numbers in caffe.proto


def _one(op: str):
    def convert(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
        layer.only(x, 1)
        return builder.add(op, x[0])

    return convert


def _affine(builder: Builder, x: str, scale: float, shift: float) -> str:
    """Compute x * scale + shift; leave out a scale of 1 and a shift of 0."""
    if scale != 1:
        x = builder.add("Mul", x, builder.constant("scale", scale))
    if shift != 0:
        x = builder.add("Add", x, builder.constant("shift", shift))
    return x


def _relu(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    slope = layer.message.message("relu_param").number("negative_slope", 0.0)
    if slope == 0:
        return builder.add("Relu", x[0])
    return builder.add("LeakyRelu", x[0], alpha=slope)


def _elu(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    alpha = layer.message.message("elu_param").number("alpha", 1.0)
    return builder.add("Elu", x[0], alpha=alpha)


def _swish(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    beta = layer.message.message("swish_param").number("beta", 1.0)
    return builder.add("Mul", x[0], builder.add("Sigmoid", _affine(builder, x[0], beta, 0.0)))


def _clip(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    low, high = 0.0, 6.0
    if layer.type == "Clip":
        options = layer.message.message("clip_param")
        low, high = options.number("min", -math.inf), options.number("max", math.inf)
    ends = [builder.constant(name, end) for name, end in (("min", low), ("max", high))]
    return builder.add("Clip", x[0], *ends)


def _power(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Compute (shift + scale * x) ** power."""
    layer.only(x, 1)
    options = layer.message.message("power_param")
    power = options.number("power", 1.0)
    inner = _affine(builder, x[0], options.number("scale", 1.0), options.number("shift", 0.0))
    if power == 1:
        return inner
    return builder.add("Pow", inner, builder.constant("power", power))


def _exp(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Compute base ** (shift + scale * x)."""
    layer.only(x, 1)
    options = layer.message.message("exp_param")
    factor = _log_of_base(layer, options.number("base", -1.0))
    scale, shift = options.number("scale", 1.0), options.number("shift", 0.0)
    return builder.add("Exp", _affine(builder, x[0], scale * factor, shift * factor))


def _log(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Compute log(shift + scale * x) to the layer's base."""
    layer.only(x, 1)
    options = layer.message.message("log_param")
    factor = _log_of_base(layer, options.number("base", -1.0))
    if factor == 0:
        raise UsageError(
            f"{layer.title}: its base is 1; allowed: other numbers above 0, and -1 for e"
        )
    inner = _affine(builder, x[0], options.number("scale", 1.0), options.number("shift", 0.0))
    return _affine(builder, builder.add("Log", inner), 1 / factor, 0.0)


def _log_of_base(layer: CaffeLayer, base: float) -> float:
    if base == -1:
        return 1.0
    if not 0 < base < math.inf:
        raise UsageError(f"{layer.title}: its base is {base}; allowed: above 0, and -1 for e")
    return math.log(base)


def _threshold(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    threshold = layer.message.message("threshold_param").number("threshold", 0.0)
    above = builder.add("Greater", x[0], builder.constant("threshold", threshold))
    return cast(builder, above, np.float32)


def _eltwise(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    options = layer.message.message("eltwise_param")
    text = options.text("operation", "SUM")
    operation = (
        NUMBERS[int(text)] if text in ("0", "1", "2") else options.choice("operation", OPERATIONS)
    )
    factors = options.numbers("coeff") or [1.0] * len(x)
    shapes = {builder.shape(name) for name in x}
    if len(x) < 2 or len(factors) != len(x) or len(shapes) > 1:
        raise UsageError(
            f"{layer.title}: it has {len(x)} inputs of the shapes {sorted(shapes)} and"
            f" {len(factors)} coefficients; allowed: two or more inputs of one shape, and one"
            " coefficient for each"
        )
    if operation == "SUM":
        x = [_affine(builder, name, factor, 0.0) for name, factor in zip(x, factors, strict=True)]
    result = x[0]
    for name in x[1:]:
        result = builder.add({"SUM": "Add", "PROD": "Mul", "MAX": "Max"}[operation], result, name)
    return result


def _softmax(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    options = layer.message.message("softmax_param")
    return builder.add("Softmax", x[0], axis=axis_of(options, "axis", 1, len(builder.shape(x[0]))))


def _mvn(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Normalize each channel, or each image, to mean 0 and variance 1."""
    layer.only(x, 1)
    options = layer.message.message("mvn_param")
    rank = len(builder.shape(x[0]))
    axes = list(range(1 if options.flag("across_channels", False) else 2, rank))
    if not axes:
        raise UsageError(f"{layer.title}: its input has {rank} dimensions; allowed: 3 and more")
    centred = builder.add("Sub", x[0], builder.add("ReduceMean", x[0], axes=axes))
    if not options.flag("normalize_variance", True):
        return centred
    squares = builder.add("Mul", centred, centred)
    deviation = builder.add("Sqrt", builder.add("ReduceMean", squares, axes=axes))
    floor = builder.constant("eps", options.number("eps", 1e-9))
    return builder.add("Div", centred, builder.add("Add", deviation, floor))


LAYERS = {
    "AbsVal": _one("Abs"),
    "BNLL": _one("Softplus"),
    "Clip": _clip,
    "ELU": _elu,
    "Eltwise": _eltwise,
    "Exp": _exp,
    "Log": _log,
    "MVN": _mvn,
    "Power": _power,
    "ReLU": _relu,
    "ReLU6": _clip,
    "Sigmoid": _one("Sigmoid"),
    "Softmax": _softmax,
    "Swish": _swish,
    "TanH": _one("Tanh"),
    "Threshold": _threshold,
}
