"""Operations that frameworks spell with several operators: softmax, means, clipping, erf of -x."""

from __future__ import annotations

import math

import numpy as np

from slipstream.infer.graph.graph import Node
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite
from slipstream.infer.rewrites.patterns import axes, is_close

RELATIVE = 1e-6


def _reduced(editor: Editor, name: str, op: str, x: str) -> int | None:
    """Return the axis along which a value reduces x; None for other values.

    The value must reduce x along no other axis, and must keep the reduced axis with length 1.
    """
    node = editor.producer(name, op)
    if node is None or node.inputs[0] != x or node.get("keepdims", 1) != 1:
        return None
    over = axes(editor, node)
    return over[0] if over is not None and len(over) == 1 else None


def _shifted(editor: Editor, name: str) -> tuple[str, int] | None:
    """Return x and the axis of the maximum if a value is x - max(x); else None."""
    node = editor.producer(name, "Sub")
    axis = None if node is None else _reduced(editor, node.inputs[1], "ReduceMax", node.inputs[0])
    return None if node is None or axis is None else (node.inputs[0], axis)


def _softmax(editor: Editor, node: Node) -> Replacement:
    """Replace exp(x - max(x)) / sum(exp(x - max(x))) by Softmax(x)."""
    power, total = node.inputs
    exp = editor.producer(power, "Exp")
    axis = _reduced(editor, total, "ReduceSum", power)
    matched = None if exp is None else _shifted(editor, exp.inputs[0])
    if matched is None or matched[1] != axis:
        return None
    return [Node("Softmax", [matched[0]], node.outputs, {"axis": matched[1]}, name=node.name)]


def _log_softmax(editor: Editor, node: Node) -> Replacement:
    """Replace x - max(x) - log(sum(exp(x - max(x)))) by LogSoftmax(x)."""
    shifted, logarithm = node.inputs
    log = editor.only(logarithm, "Log")
    total = None if log is None else editor.producer(log.inputs[0], "ReduceSum")
    exp = None if total is None else editor.producer(total.inputs[0], "Exp")
    matched = _shifted(editor, shifted)
    if log is None or exp is None or exp.inputs[0] != shifted or matched is None:
        return None
    if _reduced(editor, log.inputs[0], "ReduceSum", exp.output) != matched[1]:
        return None
    return [Node("LogSoftmax", [matched[0]], node.outputs, {"axis": matched[1]}, name=node.name)]


# ---- means ------------------------------------------------------------------------------------


def _mean(editor: Editor, node: Node) -> Replacement:
    """Replace a sum that is divided by the number of its terms by a ReduceMean.

    A Reshape may lie between the sum and the division.
    """
    source, number = _quotient(editor, node)
    reshape = editor.only(source, "Reshape")
    total = editor.only(source if reshape is None else reshape.inputs[0], "ReduceSum")
    over = None if total is None else axes(editor, total)
    shape = None if total is None else editor.shape(total.inputs[0])
    if total is None or over is None or shape is None or number is None:
        return None
    if not math.isclose(number, math.prod(shape[axis] for axis in over), rel_tol=RELATIVE):
        return None
    if editor.value(total.inputs[0]).dtype != np.float32:
        return None
    attributes = {"axes": over, "keepdims": total.get("keepdims", 1)}
    if reshape is None:
        return [Node("ReduceMean", [total.inputs[0]], node.outputs, attributes, name=node.name)]
    mean = editor.name(f"{node.output}_mean")
    return [
        Node("ReduceMean", [total.inputs[0]], [mean], attributes),
        Node("Reshape", [mean, *reshape.inputs[1:]], node.outputs, name=node.name),
    ]


def _quotient(editor: Editor, node: Node) -> tuple[str, float | None]:
    """Return the dividend and the scalar divisor; the divisor is None if it is not constant."""
    first, second = node.inputs
    if node.op == "Div":
        return first, editor.scalar(second)
    for one, other in ((first, second), (second, first)):
        number = editor.scalar(other)
        if number:
            return one, 1 / number
    return first, None


# ---- clipping, erf ----------------------------------------------------------------------------


def _clip(editor: Editor, node: Node) -> Replacement:
    """Replace min(relu(x), c) by Clip(x, 0, c)."""
    for one, other in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
        relu, most = editor.only(one, "Relu"), editor.scalar(other)
        if relu is None or most is None or editor.value(other).dtype != np.float32:
            continue
        low = editor.add_constant(f"{node.output}_min", np.array(0, np.float32))
        high = editor.add_constant(f"{node.output}_max", np.array(most, np.float32))
        return [Node("Clip", [relu.inputs[0], low, high], node.outputs, name=node.name)]
    return None


def _erfc(editor: Editor, node: Node) -> Replacement:
    """Replace 1 - erf(-x c) by 1 + erf(x c)."""
    erf = editor.only(node.inputs[1], "Erf")
    product = None if erf is None else editor.only(erf.inputs[0], "Div", "Mul")
    negative = None if product is None else editor.only(product.inputs[0], "Neg")
    if erf is None or product is None or negative is None:
        return None
    if not is_close(editor.scalar(node.inputs[0]), 1):
        return None
    inner, outer = (editor.name(f"{node.output}_{stem}") for stem in ("scaled", "erf"))
    return [
        Node(product.op, [negative.inputs[0], product.inputs[1]], [inner]),
        Node("Erf", [inner], [outer]),
        Node("Add", [outer, node.inputs[0]], node.outputs, name=node.name),
    ]


REWRITES = (
    rewrite("softmax", "exp(x - max) / sum(exp(x - max)) becomes one operator", _softmax, "Div"),
    rewrite("log-softmax", "x - max - log(sum) becomes one operator", _log_softmax, "Sub"),
    rewrite("means", "a sum divided by the number of terms becomes a mean", _mean, "Div", "Mul"),
    rewrite("clip", "min(relu(x), c) becomes one operator", _clip, "Min"),
    rewrite("erfc", "1 - erf(-x) becomes 1 + erf(x)", _erfc, "Sub"),
)
