"""Operators that treat every element separately: activations, arithmetic, comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.moves import axis_of, cast
from slipstream.infer.importers.mxnet.products import along
from slipstream.infer.importers.mxnet.symbol import SymbolOptions

Convert = Callable[[Builder, SymbolOptions, list[str]], str]
SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805
CASTS = ("float32", "float64", "float16", "uint8", "int8", "int32", "int64")

UNARY = {
    "_copy": "Identity",
    "abs": "Abs",
    "arccos": "Acos",
    "arcsin": "Asin",
    "arctan": "Atan",
    "ceil": "Ceil",
    "cos": "Cos",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "identity": "Identity",
    "log": "Log",
    "negative": "Neg",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
BINARY = {
    "Add": ("elemwise_add", "broadcast_add", "broadcast_plus", "_plus", "_Plus", "_add"),
    "Sub": ("elemwise_sub", "broadcast_sub", "broadcast_minus", "_minus", "_Minus", "_sub"),
    "Mul": ("elemwise_mul", "broadcast_mul", "_mul", "_Mul"),
    "Div": ("elemwise_div", "broadcast_div", "_div", "_Div"),
    "Pow": ("broadcast_power", "_power", "_Power"),
    "Max": ("broadcast_maximum", "_maximum", "_Maximum"),
    "Min": ("broadcast_minimum", "_minimum", "_Minimum"),
}
SCALAR = {
    "Add": ("_plus_scalar", "_PlusScalar"),
    "Sub": ("_minus_scalar", "_MinusScalar"),
    "Mul": ("_mul_scalar", "_MulScalar"),
    "Div": ("_div_scalar", "_DivScalar"),
    "Pow": ("_power_scalar", "_PowerScalar"),
    "Max": ("_maximum_scalar", "_MaximumScalar"),
    "Min": ("_minimum_scalar", "_MinimumScalar"),
}
SCALAR_FIRST = {
    "Sub": ("_rminus_scalar", "_RMinusScalar"),
    "Div": ("_rdiv_scalar", "_RDivScalar"),
    "Pow": ("_rpower_scalar", "_RPowerScalar"),
}
COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "lesser": "Less",
    "lesser_equal": "LessOrEqual",
}


def _unary(op: str) -> Convert:
    return lambda builder, options, x: builder.add(op, x[0])


def _binary(op: str) -> Convert:
    return lambda builder, options, x: builder.add(op, x[0], x[1])


def _scalar(builder: Builder, options: SymbolOptions, x: str) -> str:
    return builder.constant(
        "scalar", np.asarray(options.number("scalar", 1.0)).astype(builder.dtype(x))
    )


def _with_scalar(op: str, *, is_first: bool = False) -> Convert:
    def convert(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
        pair = [x[0], _scalar(builder, options, x[0])]
        return builder.add(op, *(reversed(pair) if is_first else pair))

    return convert


def _compared(op: str, *, by_scalar: bool) -> Convert:
    """Return a function that converts a comparison; the results are the floats 1.0 and 0.0."""

    def convert(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
        other = _scalar(builder, options, x[0]) if by_scalar else x[1]
        return cast(builder, builder.add(op, x[0], other), np.float32)

    return convert


def _activation(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    ops = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus"}
    ops["softsign"] = "Softsign"
    return builder.add(ops[options.choice("act_type", list(ops))], x[0])


def _leaky_relu(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    kinds = ("leaky", "prelu", "elu", "selu", "gelu", "rrelu")
    kind = options.choice("act_type", kinds)
    slope = options.number("slope", 0.25)
    if kind == "prelu":
        rank = len(builder.shape(x[0]))
        return builder.add("PRelu", x[0], along(builder, x[1], min(1, rank - 1), rank))
    if kind == "elu":
        return builder.add("Elu", x[0], alpha=slope)
    if kind == "selu":
        return builder.add("Selu", x[0], alpha=SELU_ALPHA, gamma=SELU_GAMMA)
    if kind == "gelu":
        return _gelu(builder, x[0])
    if kind == "rrelu":
        slope = (options.number("lower_bound", 0.125) + options.number("upper_bound", 0.334)) / 2
    return builder.add("LeakyRelu", x[0], alpha=slope)


def _gelu(builder: Builder, x: str) -> str:
    scaled = builder.add("Mul", x, builder.constant("scale", math.sqrt(0.5)))
    shifted = builder.add("Add", builder.add("Erf", scaled), builder.constant("one", 1.0))
    return builder.add("Mul", builder.add("Mul", x, shifted), builder.constant("half", 0.5))


def _hard_sigmoid(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    alpha, beta = options.number("alpha", 0.2), options.number("beta", 0.5)
    return builder.add("HardSigmoid", x[0], alpha=alpha, beta=beta)


def _clip(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    ends = [
        builder.constant(name, np.asarray(options.number(name, 0.0)).astype(builder.dtype(x[0])))
        for name in ("a_min", "a_max")
    ]
    return builder.add("Clip", x[0], *ends)


def _power_of(power: float) -> Convert:
    return lambda builder, options, x: builder.add("Pow", x[0], builder.constant("power", power))


def _square(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    del options
    return builder.add("Mul", x[0], x[0])


def _rsqrt(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    del options
    return builder.add("Reciprocal", builder.add("Sqrt", x[0]))


def _div_sqrt_dim(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    del options
    factor = 1 / math.sqrt(builder.shape(x[0])[-1])
    return builder.add("Mul", x[0], builder.constant("factor", factor))


def _sum_of_all(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    del options
    result = x[0]
    for name in x[1:]:
        result = builder.add("Add", result, name)
    return result


def _same(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    del builder, options
    return x[0]


def _cast(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    dtype = np.dtype(options.choice("dtype", CASTS))
    return cast(builder, x[0], np.float32 if dtype.kind == "f" else dtype)


def _where(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    del options
    return builder.add("Where", cast(builder, x[0], np.bool_), x[1], x[2])


def _softmax(op: str) -> Convert:
    def convert(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
        if options.flag("use_length", False):
            raise UsageError(f"{options.where}: use_length cannot be imported")
        data, temperature = x[0], options.number("temperature", 1.0)
        if temperature != 1:
            data = builder.add("Div", data, builder.constant("temperature", temperature))
        axis = axis_of(options, "axis", -1, len(builder.shape(data)))
        return builder.add(op, data, axis=axis)

    return convert


def _softmax_output(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    """Compute the softmax over the channels; with `preserve_shape`, over the last axis."""
    rank = len(builder.shape(x[0]))
    if options.flag("multi_output", False) or rank == 2:
        return builder.add("Softmax", x[0], axis=1)
    if options.flag("preserve_shape", False):
        return builder.add("Softmax", x[0], axis=rank - 1)
    raise _ambiguous(options, rank, "multi_output=True or preserve_shape=True")


def _softmax_activation(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    rank = len(builder.shape(x[0]))
    if options.choice("mode", ("instance", "channel")) == "channel" or rank == 2:
        return builder.add("Softmax", x[0], axis=1)
    raise _ambiguous(options, rank, "mode='channel', or use softmax")


def _ambiguous(options: SymbolOptions, rank: int, instead: str) -> UsageError:
    return UsageError(
        f"{options.where}: with {rank} dimensions the softmax is over the last axis in builds of"
        f" MXNet with oneDNN and over all axes in others; use {instead}"
    )


OPERATORS: dict[str, Convert] = {
    **{name: _unary(op) for name, op in UNARY.items()},
    **{name: _binary(op) for op, names in BINARY.items() for name in names},
    **{name: _with_scalar(op) for op, names in SCALAR.items() for name in names},
    **{
        name: _with_scalar(op, is_first=True)
        for op, names in SCALAR_FIRST.items()
        for name in names
    },
    **{f"broadcast_{name}": _compared(op, by_scalar=False) for name, op in COMPARISONS.items()},
    **{f"_{name}": _compared(op, by_scalar=False) for name, op in COMPARISONS.items()},
    **{f"_{name}_scalar": _compared(op, by_scalar=True) for name, op in COMPARISONS.items()},
    "Activation": _activation,
    "BlockGrad": _same,
    "Cast": _cast,
    "Dropout": _same,
    "ElementWiseSum": _sum_of_all,
    "LeakyReLU": _leaky_relu,
    "LinearRegressionOutput": _same,
    "LogisticRegressionOutput": _unary("Sigmoid"),
    "MAERegressionOutput": _same,
    "MakeLoss": _same,
    "SVMOutput": _same,
    "Softmax": _softmax_output,
    "SoftmaxActivation": _softmax_activation,
    "SoftmaxOutput": _softmax_output,
    "_contrib_div_sqrt_dim": _div_sqrt_dim,
    "_grad_add": _binary("Add"),
    "add_n": _sum_of_all,
    "amp_cast": _same,
    "cast": _cast,
    "cbrt": _power_of(1 / 3),
    "clip": _clip,
    "hard_sigmoid": _hard_sigmoid,
    "log_softmax": _softmax("LogSoftmax"),
    "make_loss": _same,
    "rsqrt": _rsqrt,
    "softmax": _softmax("Softmax"),
    "square": _square,
    "stop_gradient": _same,
    "where": _where,
}
