"""TensorFlow's element-wise ops, reductions and matrix products, as ONNX operators."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream.infer.importers import moves
from slipstream.infer.importers.products import contracted
from slipstream.infer.importers.step import Rule, Step, choose

# ---- one element ------------------------------------------------------------------------------

UNARY = {
    **{"Abs": "Abs", "Acos": "Acos", "Acosh": "Acosh", "Asin": "Asin", "Asinh": "Asinh"},
    **{"Atan": "Atan", "Atanh": "Atanh", "Ceil": "Ceil", "Cos": "Cos", "Cosh": "Cosh"},
    **{"Elu": "Elu", "Erf": "Erf", "Exp": "Exp", "Floor": "Floor", "Inv": "Reciprocal"},
    **{"IsInf": "IsInf", "IsNan": "IsNaN", "Log": "Log", "Neg": "Neg", "Relu": "Relu"},
    **{"Reciprocal": "Reciprocal", "Rint": "Round", "Round": "Round", "Selu": "Selu"},
    **{"Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin", "Sinh": "Sinh", "Sqrt": "Sqrt"},
    **{"Softplus": "Softplus", "Softsign": "Softsign", "Tan": "Tan", "Tanh": "Tanh"},
}
BINARY = {
    **{"Add": "Add", "AddV2": "Add", "Div": "Div", "Equal": "Equal", "Greater": "Greater"},
    **{"GreaterEqual": "GreaterOrEqual", "Less": "Less", "LessEqual": "LessOrEqual"},
    **{"Maximum": "Max", "Minimum": "Min", "Mul": "Mul", "Pow": "Pow", "RealDiv": "Div"},
    **{"Sub": "Sub"},
}
PASSED_ON = (
    *("CheckNumerics", "EnsureShape", "Identity", "IdentityN", "PlaceholderWithDefault"),
    *("PreventGradient", "Snapshot", "StopGradient"),
)


def _unary(op: str) -> Rule:
    def rule(step: Step) -> str:
        return step.b.add(op, step.wide(0))

    return rule


def _binary(op: str) -> Rule:
    def rule(step: Step) -> str:
        return step.b.add(op, step.wide(0), step.wide(1))

    return rule


def _logic(op: str) -> Rule:
    def rule(step: Step) -> str:
        return step.b.add(op, *(step.full(at) for at in range(step.count)))

    return rule


def _passed_on(step: Step) -> list[str]:
    return [step.full(at) for at in range(step.count)][: step.num_results]


def _number(step: Step, value: float) -> str:
    return moves.scalar(step.b, value, step.b.dtype(step.wide(0)))


def _clipped(step: Step) -> str:
    """Clip to the range 0 to 6 (Relu6)."""
    return step.b.add("Clip", step.full(0), _number(step, 0), _number(step, 6))


def _leaky(step: Step) -> str:
    return step.b.add("LeakyRelu", step.full(0), alpha=float(step.params["alpha"]))


def _square(step: Step) -> str:
    return step.b.add("Mul", step.wide(0), step.wide(0))


def _squared_difference(step: Step) -> str:
    difference = step.b.add("Sub", step.wide(0), step.wide(1))
    return step.b.add("Mul", difference, difference)


def _inverse_root(step: Step) -> str:
    return step.b.add("Reciprocal", step.b.add("Sqrt", step.full(0)))


def _erfc(step: Step) -> str:
    return step.b.add("Sub", _number(step, 1), step.b.add("Erf", step.full(0)))


def _log1p(step: Step) -> str:
    return step.b.add("Log", step.b.add("Add", step.full(0), _number(step, 1)))


def _expm1(step: Step) -> str:
    return step.b.add("Sub", step.b.add("Exp", step.full(0)), _number(step, 1))


def _is_finite(step: Step) -> str:
    b, x = step.b, step.full(0)
    return b.add("Not", b.add("Or", b.add("IsNaN", x), b.add("IsInf", x)))


def _not_equal(step: Step) -> str:
    if step.b.dtype(step.full(0)) == np.bool_:
        return step.b.add("Xor", step.full(0), step.full(1))
    return step.b.add("Not", step.b.add("Equal", step.wide(0), step.wide(1)))


def _floor_mod(step: Step) -> str:
    """Compute the remainder of a division; it has the sign of the divisor."""
    b, x, y = step.b, step.wide(0), step.wide(1)
    if step.dtype.kind != "f":
        return b.add("Mod", x, y)
    return b.add("Sub", x, b.add("Mul", b.add("Floor", b.add("Div", x, y)), y))


def _floor_div(step: Step) -> str:
    b, x, y = step.b, step.wide(0), step.wide(1)
    if step.dtype.kind == "f":
        return b.add("Floor", b.add("Div", x, y))
    return b.add("Div", b.add("Sub", x, b.add("Mod", x, y)), y)


def _truncated_mod(step: Step) -> str:
    return step.b.add("Mod", step.wide(0), step.wide(1), fmod=1)


def _safe_quotient(step: Step) -> str:
    """Compute x / y, or 0 if y is 0."""
    b, y = step.b, step.full(1)
    zero = _number(step, 0)
    return b.add("Where", b.add("Equal", y, zero), zero, b.add("Div", step.full(0), y))


def _sum_of_all(step: Step) -> str:
    total = step.wide(0)
    for at in range(1, step.count):
        total = step.b.add("Add", total, step.wide(at))
    return total


def _clip_by_value(step: Step) -> str:
    return step.b.add("Min", step.b.add("Max", step.wide(0), step.wide(1)), step.wide(2))


def _select(step: Step) -> str:
    if step.dtype == np.bool_:
        return choose(step.b, step.full(0), step.full(1), step.full(2))
    return choose(step.b, step.full(0), step.wide(1), step.wide(2))


def _first_select(step: Step) -> str:
    """Convert Select, the predecessor of SelectV2.

    If the condition is a vector, each of its elements chooses one row of the result.
    """
    condition = step.full(0)
    condition_shape, rank = step.b.shape(condition), len(step.operands[1].shape)
    if len(condition_shape) == 1 and rank > 1:
        condition = moves.reshape(
            step.b, condition, [*condition_shape, *(1 for _ in range(rank - 1))]
        )
    return choose(step.b, condition, step.wide(1), step.wide(2))


def _converted(step: Step) -> str:
    return moves.cast(step.b, step.full(0), step.dtype)


def _biased(step: Step) -> str:
    x, bias = step.full(0), step.full(1)
    if step.text("data_format", "NHWC").startswith("NC"):
        sizes = [*step.b.shape(bias), *(1 for _ in step.b.shape(x)[2:])]
        bias = moves.reshape(step.b, bias, sizes)
    return step.b.add("Add", x, bias)


# ---- reductions -------------------------------------------------------------------------------

REDUCTIONS = {
    **{"All": "ReduceMin", "Any": "ReduceMax", "Max": "ReduceMax", "Mean": "ReduceMean"},
    **{"Min": "ReduceMin", "Prod": "ReduceProd"},
}


def _axes(step: Step, at: int = 1) -> list[int]:
    rank = len(step.operands[0].shape)
    return sorted(int(axis) % rank for axis in step.known(at).reshape(-1))


def _reduced(op: str) -> Rule:
    def rule(step: Step) -> str:
        over, keep = _axes(step), int(step.params["keep_dims"])
        if not over:
            return step.full(0)
        return step.b.add(op, step.wide(0), axes=over, keepdims=keep)

    return rule


def _summed(step: Step) -> str:
    over, keep = _axes(step), int(step.params["keep_dims"])
    if not over:
        return step.full(0)
    axes = moves.numbers(step.b, "axes", over)
    return step.b.add("ReduceSum", step.wide(0), axes, keepdims=keep)


def _extreme(op: str) -> Rule:
    def rule(step: Step) -> str:
        axis = int(step.known(1))
        return step.b.add(op, step.wide(0), axis=axis, keepdims=0)

    return rule


def _running_sum(step: Step) -> str:
    axis = moves.scalar(step.b, int(step.known(1)), np.int64)
    return step.b.add(
        "CumSum",
        step.wide(0),
        axis,
        exclusive=int(step.params["exclusive"]),
        reverse=int(step.params["reverse"]),
    )


def _along_last(op: str) -> Rule:
    def rule(step: Step) -> str:
        return step.b.add(op, step.full(0), axis=-1)

    return rule


# ---- matrices ---------------------------------------------------------------------------------


def _swapped(step: Step, at: int, *names: str) -> str:
    """Return the name of an operand.

    The operand's last two axes are swapped if one of the parameters `names` is true.
    """
    name = step.wide(at)
    if not any(step.params.get(flag, False) for flag in names):
        return name
    rank = len(step.b.shape(name))
    return moves.transpose(step.b, name, [*range(rank - 2), rank - 1, rank - 2])


def _matrix_product(step: Step) -> str:
    left = _swapped(step, 0, "transpose_a", "adj_x")
    return step.b.add("MatMul", left, _swapped(step, 1, "transpose_b", "adj_y"))


def _einsum(step: Step) -> str:
    """Convert an einsum to MatMul if possible, else to ONNX's Einsum.

    MatMul is possible if there are two operands, no term repeats a letter, and every letter of one
    operand alone occurs in the output.
    """
    text = step.text("equation").replace(" ", "")
    inputs, _, output = text.partition("->")
    terms = inputs.split(",")
    is_plain = len(terms) == 2 and "..." not in text and "->" in text
    if not is_plain or any(len(set(term)) != len(term) for term in terms):
        return step.b.add("Einsum", *(step.wide(at) for at in range(step.count)), equation=text)
    left, right = terms
    operands = [step.wide(0), step.wide(1)]
    if _is_swapped(left, right, output):
        left, right, operands = right, left, operands[::-1]
    both = [letter for letter in left if letter in right]
    alone = [letter for letter in (*left, *right) if letter not in both and letter not in output]
    if alone:
        return step.b.add("Einsum", step.wide(0), step.wide(1), equation=text)
    summed = [(left.index(c), right.index(c)) for c in both if c not in output]
    shared = [(left.index(c), right.index(c)) for c in both if c in output]
    name = contracted(step.b, operands[0], operands[1], summed, shared)
    current = [c for c in both if c in output]
    current += [c for c in (*left, *right) if c not in both]
    return moves.transpose(step.b, name, [current.index(c) for c in output])


def _is_swapped(left: str, right: str, output: str) -> bool:
    """Return whether an einsum's result has axes of the right operand before those of the left.

    Axes that both operands have are not compared.
    """
    first = [output.index(c) for c in left if c in output and c not in right]
    second = [output.index(c) for c in right if c in output and c not in left]
    return bool(first) and bool(second) and max(second) < min(first)


def _band(step: Step) -> str:
    """Convert MatrixBandPart, which keeps the main diagonal and its neighbours.

    MatrixBandPart keeps `lower` diagonals below the main diagonal and `upper` diagonals above it.
    """
    lower, upper = int(step.known(1)), int(step.known(2))
    rows, columns = step.operands[0].shape[-2:]
    below = np.arange(rows)[:, None] - np.arange(columns)
    is_inside = ((lower < 0) | (below <= lower)) & ((upper < 0) | (-below <= upper))
    if step.dtype == np.bool_:
        return step.b.add("And", step.full(0), step.b.constant("band", is_inside))
    zero = moves.scalar(step.b, 0, step.b.dtype(step.wide(0)))
    return step.b.add("Where", step.b.constant("band", is_inside), step.wide(0), zero)


OPS: dict[str, Rule] = {
    **{name: _unary(op) for name, op in UNARY.items()},
    **{name: _binary(op) for name, op in BINARY.items()},
    **{name: _reduced(op) for name, op in REDUCTIONS.items()},
    **dict.fromkeys(PASSED_ON, _passed_on),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "MatMul"), _matrix_product),
    "AddN": _sum_of_all,
    "ArgMax": _extreme("ArgMax"),
    "ArgMin": _extreme("ArgMin"),
    "BiasAdd": _biased,
    "Cast": _converted,
    "ClipByValue": _clip_by_value,
    "Cumsum": _running_sum,
    "DivNoNan": _safe_quotient,
    "Einsum": _einsum,
    "Erfc": _erfc,
    "Expm1": _expm1,
    "FloorDiv": _floor_div,
    "FloorMod": _floor_mod,
    "IsFinite": _is_finite,
    "LeakyRelu": _leaky,
    "Log1p": _log1p,
    "LogSoftmax": _along_last("LogSoftmax"),
    "LogicalAnd": _logic("And"),
    "LogicalNot": _logic("Not"),
    "LogicalOr": _logic("Or"),
    "MatrixBandPart": _band,
    "Mod": _truncated_mod,
    "NotEqual": _not_equal,
    "Relu6": _clipped,
    "Rsqrt": _inverse_root,
    "Select": _first_select,
    "SelectV2": _select,
    "Softmax": _along_last("Softmax"),
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "Sum": _summed,
    "TruncateMod": _truncated_mod,
}
