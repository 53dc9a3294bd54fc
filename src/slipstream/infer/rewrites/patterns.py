"""Parts of patterns that several rewrites match: operands, products, axes and shapes."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from slipstream.infer.graph.graph import Array, Node, Value
from slipstream.infer.rewrites.editor import Editor

CLOSE = 1e-5  # relative tolerance; exporters write constants with at least six digits

RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands of a binary operator: a constant and a computed value.

    Args:
        value: Name of the operand that is computed.
        constant: Constant operand.
        constant_first: Whether the constant is the first operand.
    """

    value: str
    constant: Array
    constant_first: bool


def operands(editor: Editor, node: Node) -> Operands | None:
    """Return the operands of a binary operator if exactly one is a constant, else None."""
    first, second = node.inputs
    constants = editor.constant(first), editor.constant(second)
    if constants[0] is not None and constants[1] is None:
        return Operands(second, constants[0], True)
    if constants[1] is not None and constants[0] is None:
        return Operands(first, constants[1], False)
    return None


def is_close(number: float | None, expected: float) -> bool:
    """Return whether a constant equals the expected number, apart from rounding."""
    return number is not None and math.isclose(number, expected, rel_tol=CLOSE)


def plus(editor: Editor, name: str, expected: float) -> str | None:
    """Return x if a value is x plus the expected number, and only one node reads it; else None."""
    node = editor.only(name, "Add")
    for one, other in _orders(node):
        if is_close(editor.scalar(other), expected):
            return one
    return None


def _orders(node: Node | None) -> list[tuple[str, str]]:
    if node is None:
        return []
    first, second = node.inputs
    return [(first, second), (second, first)]


def factors(editor: Editor, name: str) -> tuple[float, list[str]]:
    """Split a product into its scalar factor (1 if it has none) and the names of other factors.

    A factor that is itself a product, and that only one node reads, is split, too.
    """
    node = editor.only(name, "Mul", "Div")
    return (1.0, [name]) if node is None else factors_of(editor, node)


def factors_of(editor: Editor, node: Node) -> tuple[float, list[str]]:
    """Return the factors of the output of a Mul or Div, as `factors` does."""
    first, second = node.inputs
    if node.op == "Div":
        divisor = editor.scalar(second)
        if not divisor:
            return 1.0, [node.output]
        scale, others = factors(editor, first)
        return scale / divisor, others
    scale, others = 1.0, list[str]()
    for name in (first, second):
        number = editor.scalar(name)
        if number is None:
            number, more = factors(editor, name)
            others += more
        scale *= number
    return scale, others


def squared(editor: Editor, name: str) -> str | None:
    """Return x if a value is the square of x, and only one node reads the value; else None."""
    node = editor.only(name, "Mul", "Pow")
    if node is None:
        return None
    first, second = node.inputs
    is_square = first == second if node.op == "Mul" else is_close(editor.scalar(second), 2)
    return first if is_square else None


def inverse_root(editor: Editor, name: str) -> str | None:
    """Return x if a value is 1 / sqrt(x), and only one node reads the value; else None."""
    node = editor.only(name, "Div", "Reciprocal")
    if node is None or (node.op == "Div" and not is_close(editor.scalar(node.inputs[0]), 1)):
        return None
    root = editor.only(node.inputs[-1], "Sqrt")
    return None if root is None else root.inputs[0]


def plus_epsilon(editor: Editor, name: str) -> tuple[str, float] | None:
    """Return x and epsilon if a value is x plus a constant epsilon, else None.

    The result is also None if several nodes read the value.
    """
    node = editor.only(name, "Add")
    for one, other in _orders(node):
        epsilon = editor.scalar(other)
        if epsilon is not None and 0 <= epsilon < 1:
            return one, epsilon
    return None


def axes(editor: Editor, node: Node) -> list[int] | None:
    """Return the axes of a reduction, Squeeze or Unsqueeze, counted from 0; None if unknown."""
    numbers = node.get("axes")
    if numbers is None and len(node.inputs) > 1:
        array = editor.constant(node.inputs[1])
        numbers = None if array is None else array.reshape(-1).tolist()
    rank = editor.rank(node.inputs[0] if node.op != "Unsqueeze" else node.output)
    if numbers is None or rank is None:
        return None
    return sorted(axis % rank for axis in numbers)


def is_same(one: int | str | None, other: int | str | None) -> bool:
    """Return whether two sizes are known to be equal."""
    return one is not None and one == other


def reshaped(editor: Editor, name: str) -> str:
    """Return the value before a chain of operators that only reshape the value."""
    node = editor.only(name, *RESHAPES)
    return name if node is None else reshaped(editor, node.inputs[0])


def target(old: Value, new: Value) -> Array | None:
    """Return the second input of a Reshape that turns `old` into `new`; None if it is unknown."""
    if old.shape is None or new.shape is None:
        return None
    sizes: list[int] = []
    for at, size in enumerate(new.shape):
        if isinstance(size, int):
            sizes.append(size)
        else:
            is_kept = at < len(old.shape) and is_same(old.shape[at], size)
            sizes.append(0 if is_kept else -1)
    # In the target of a Reshape, 0 does not mean an empty axis, but copies a size of the input.
    if sizes.count(-1) > 1 or 0 in new.shape:
        return None
    return np.array(sizes, np.int64)
