"""JAX's element-wise primitives, shape changes and reductions, as ONNX operators."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math

import numpy as np

from slipstream.infer.importers import moves
from slipstream.infer.importers.step import Rule, Step, Unimportable, choose

# ---- one element ------------------------------------------------------------------------------

UNARY = {
    **{"abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh"},
    **{"atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh"},
    **{"erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "logistic": "Sigmoid"},
    **{"neg": "Neg", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt"},
    **{"tan": "Tan", "tanh": "Tanh"},
}
BINARY = {
    **{"add": "Add", "add_any": "Add", "div": "Div", "mul": "Mul", "sub": "Sub", "pow": "Pow"},
    **{"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater"},
    **{"le": "LessOrEqual", "lt": "Less", "max": "Max", "min": "Min"},
}
LOGIC = {"and": "And", "or": "Or", "xor": "Xor"}
PASSED_ON = (
    *("copy", "copy_p", "device_put", "layout_constraint", "name", "optimization_barrier"),
    *("pvary", "reduce_precision", "sharding_constraint", "stop_gradient"),
)


def _unary(op: str) -> Rule:
    def rule(step: Step) -> str:
        return step.b.add(op, step.wide(0))

    return rule


def _binary(op: str) -> Rule:
    def rule(step: Step) -> str:
        left, right = step.wide(0), step.wide(1)
        if step.b.dtype(left) != step.b.dtype(right):  # pow accepts a float and an int
            right = moves.cast(step.b, right, step.b.dtype(left))
        return step.b.add(op, left, right)

    return rule


def _logic(op: str) -> Rule:
    def rule(step: Step) -> str:
        if step.dtype != np.bool_:
            raise Unimportable(f"of {step.dtype}: only bool")
        return step.b.add(op, step.compact(0), step.compact(1))

    return rule


def _not(step: Step) -> str:
    if step.dtype != np.bool_:
        raise Unimportable(f"of {step.dtype}: only bool")
    return step.b.add("Not", step.compact(0))


def _max(step: Step) -> str:
    """Add Max. For max(x, 0), add Relu instead; for max(x, -inf), add nothing."""
    for at in (0, 1):
        array = step.array(at)
        if array is not None and array.size and (array == array.flat[0]).all():
            bound, other = float(array.flat[0]), 1 - at
            if bound == -math.inf and step.dtype.kind == "f":
                return step.compact(other)
            if bound == 0 and step.dtype == np.float32:
                return step.b.add("Relu", step.compact(other))
    return step.b.add("Max", step.wide(0), step.wide(1))


def _not_equal(step: Step) -> str:
    if step.b.dtype(step.compact(0)) == np.bool_:
        return step.b.add("Xor", step.compact(0), step.compact(1))
    return step.b.add("Not", step.b.add("Equal", step.wide(0), step.wide(1)))


def _remainder(step: Step) -> str:
    return step.b.add("Mod", step.wide(0), step.wide(1), fmod=1)


def _angle(step: Step) -> str:
    """Compute atan2(y, x) from the quotient y / x and the signs of y and x."""
    b, y, x = step.b, step.compact(0), step.compact(1)
    zero, pi = moves.scalar(b, 0), moves.scalar(b, math.pi)
    angle = b.add("Atan", b.add("Div", y, x))
    is_below = b.add("Less", y, zero)
    half = b.add("Where", is_below, b.add("Neg", pi), pi)
    in_quadrant = b.add("Where", b.add("Less", x, zero), b.add("Add", angle, half), angle)
    is_origin = b.add("And", b.add("Equal", x, zero), b.add("Equal", y, zero))
    return b.add("Where", is_origin, zero, in_quadrant)


def _rounded(step: Step) -> str:
    """Round to the nearest integer; round halves to the even integer, or away from zero."""
    b, x = step.b, step.compact(0)
    if "EVEN" in str(step.params.get("rounding_method", "")).upper():
        return b.add("Round", x)
    half = moves.scalar(b, 0.5)
    magnitude = b.add("Floor", b.add("Add", b.add("Abs", x), half))
    return b.add("Mul", b.add("Sign", x), magnitude)


def _power(step: Step) -> str:
    """Raise a value to a constant integer power."""
    exponent, x, b = int(step.params["y"]), step.wide(0), step.b
    if exponent == 2:
        return b.add("Mul", x, x)
    if exponent == 3:
        return b.add("Mul", b.add("Mul", x, x), x)
    if exponent == -1:
        return b.add("Reciprocal", x)
    return b.add("Pow", x, moves.scalar(b, exponent, b.dtype(x)))


def _composed(*steps: tuple[str, float | None, bool]) -> Rule:
    """Return a rule that applies operators one after the other.

    Args:
        steps: Triples of an operator, a constant operand, and whether this constant is the left
            operand. The constant is None if the operator has only one operand.
    """

    def rule(step: Step) -> str:
        name = step.wide(0)
        for op, number, is_left in steps:
            other = [] if number is None else [moves.scalar(step.b, number, step.b.dtype(name))]
            inputs = [*other, name] if is_left else [name, *other]
            name = step.b.add(op, *inputs)
        return name

    return rule


def _is_finite(step: Step) -> str:
    b, x = step.b, step.compact(0)
    return b.add("Not", b.add("Or", b.add("IsNaN", x), b.add("IsInf", x)))


def _cbrt(step: Step) -> str:
    b, x = step.b, step.compact(0)
    root = b.add("Pow", b.add("Abs", x), moves.scalar(b, 1 / 3))
    return b.add("Mul", b.add("Sign", x), root)


def _clamp(step: Step) -> str:
    bounds = [step.array(0), step.array(2)]
    is_scalar = all(array is not None and array.ndim == 0 for array in bounds)
    if is_scalar and moves.is_wide(step.dtype):
        return step.b.add("Clip", step.compact(1), step.compact(0), step.compact(2))
    return step.b.add("Min", step.b.add("Max", step.wide(1), step.wide(0)), step.wide(2))


def _select(step: Step) -> str:
    """Select a case; the first operand, bool or int32, contains the case's number."""
    which = step.compact(0)
    cases = [
        step.wide(at) if step.dtype != np.bool_ else step.compact(at) for at in range(1, step.count)
    ]
    if step.b.dtype(which) == np.bool_:
        return choose(step.b, which, cases[1], cases[0])
    chosen = cases[-1]
    for at in range(len(cases) - 2, -1, -1):
        is_at_most = step.b.add("LessOrEqual", which, moves.scalar(step.b, at, step.b.dtype(which)))
        chosen = choose(step.b, is_at_most, cases[at], chosen)
    return chosen


def _converted(step: Step) -> str:
    return moves.cast(step.b, step.compact(0), step.dtype)


def _passed_on(step: Step) -> list[str]:
    return [step.compact(at) for at in range(step.count)]


# ---- shapes -----------------------------------------------------------------------------------


def _broadcast(step: Step) -> str:
    """Add new axes of length 1; elements are repeated only if an operator needs the full shape."""
    compact_shape = step.b.shape(step.compact(0))
    shape = [1] * len(step.shape)
    for axis, size in zip(step.params["broadcast_dimensions"], compact_shape, strict=True):
        shape[axis] = size
    return moves.reshape(step.b, step.compact(0), shape)


def _reshaped(step: Step) -> str:
    return moves.reshape(step.b, step.full(0), step.shape)


def _squeezed(step: Step) -> str:
    removed = [int(axis) for axis in step.params["dimensions"]]
    compact_shape = step.b.shape(step.compact(0))
    remaining = [size for axis, size in enumerate(compact_shape) if axis not in removed]
    return moves.reshape(step.b, step.compact(0), remaining)


def _transposed(step: Step) -> str:
    return moves.transpose(step.b, step.compact(0), step.params["permutation"])


def _sliced(step: Step) -> str:
    p = step.params
    return moves.cut(step.b, step.full(0), p["start_indices"], p["limit_indices"], p["strides"])


def _joined(step: Step) -> str:
    names = [step.full(at) for at, operand in enumerate(step.operands) if 0 not in operand.shape]
    return moves.concatenate(step.b, names, step.params["dimension"])


def _stacked(step: Step) -> str:
    axis = int(step.params["axis"])
    shape = [*step.shape[:axis], 1, *step.shape[axis + 1 :]]
    names = [moves.reshape(step.b, step.full(at), shape) for at in range(step.count)]
    return moves.concatenate(step.b, names, axis)


def _unstacked(step: Step) -> list[str]:
    axis, operand_shape = int(step.params["axis"]), step.operands[0].shape
    parts: list[str] = []
    for at in range(operand_shape[axis]):
        starts, ends = [0] * len(operand_shape), list(operand_shape)
        starts[axis], ends[axis] = at, at + 1
        parts.append(
            moves.reshape(step.b, moves.cut(step.b, step.full(0), starts, ends), step.shape)
        )
    return parts


def _tiled(step: Step) -> str:
    return step.b.add("Tile", step.full(0), moves.numbers(step.b, "reps", step.params["reps"]))


def _split(step: Step) -> list[str]:
    sizes = [int(size) for size in step.params["sizes"]]
    lengths = moves.numbers(step.b, "sizes", sizes)
    return step.b.add_several(
        len(sizes), "Split", step.full(0), lengths, axis=int(step.params["axis"])
    )


def _padded(step: Step) -> str:
    low, high, holes = zip(*step.params["padding_config"], strict=True)
    value = step.full(1)
    return moves.pad(step.b, moves.spread(step.b, step.full(0), holes, value), low, high, value)


def _flipped(step: Step) -> str:
    return moves.flip(step.b, step.full(0), [int(axis) for axis in step.params["dimensions"]])


# ---- reductions -------------------------------------------------------------------------------

REDUCTIONS = {
    **{"reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd"},
    **{"reduce_or": "ReduceMax", "reduce_and": "ReduceMin"},
}


def _axes(step: Step) -> list[int]:
    return [int(axis) for axis in step.params["axes"]]


def _reduced(op: str) -> Rule:
    def rule(step: Step) -> str:
        reduced = step.b.add(op, step.wide_full(0), axes=_axes(step), keepdims=1)
        return moves.reshape(step.b, reduced, step.shape)

    return rule


def _summed(step: Step) -> str:
    axes = moves.numbers(step.b, "axes", _axes(step))
    total = step.b.add("ReduceSum", step.wide_full(0), axes, keepdims=1)
    return moves.reshape(step.b, total, step.shape)


def _extreme(op: str) -> Rule:
    def rule(step: Step) -> str:
        (axis,) = _axes(step)
        position = step.b.add(op, step.wide_full(0), axis=axis, keepdims=1)
        return moves.reshape(step.b, position, step.shape)

    return rule


def _running_sum(step: Step) -> str:
    axis = moves.scalar(step.b, int(step.params["axis"]), np.int64)
    return step.b.add("CumSum", step.wide_full(0), axis, reverse=int(step.params["reverse"]))


PRIMITIVES: dict[str, Rule] = {
    **{name: _unary(op) for name, op in UNARY.items()},
    **{name: _binary(op) for name, op in BINARY.items()},
    **{name: _logic(op) for name, op in LOGIC.items()},
    **{name: _reduced(op) for name, op in REDUCTIONS.items()},
    **dict.fromkeys(PASSED_ON, _passed_on),
    "argmax": _extreme("ArgMax"),
    "argmin": _extreme("ArgMin"),
    "atan2": _angle,
    "broadcast_in_dim": _broadcast,
    "cbrt": _cbrt,
    "clamp": _clamp,
    "concatenate": _joined,
    "convert_element_type": _converted,
    "cumsum": _running_sum,
    "erfc": _composed(("Erf", None, False), ("Sub", 1, True)),
    "exp2": _composed(("Pow", 2, True)),
    "expm1": _composed(("Exp", None, False), ("Sub", 1, False)),
    "integer_pow": _power,
    "is_finite": _is_finite,
    "log1p": _composed(("Add", 1, False), ("Log", None, False)),
    "max": _max,
    "ne": _not_equal,
    "not": _not,
    "pad": _padded,
    "reduce_sum": _summed,
    "rem": _remainder,
    "reshape": _reshaped,
    "rev": _flipped,
    "round": _rounded,
    "rsqrt": _composed(("Sqrt", None, False), ("Reciprocal", None, False)),
    "select_n": _select,
    "slice": _sliced,
    "split": _split,
    "square": lambda step: step.b.add("Mul", step.wide(0), step.wide(0)),
    "squeeze": _squeezed,
    "stack": _stacked,
    "tile": _tiled,
    "transpose": _transposed,
    "unstack": _unstacked,
}
