"""Factors that move through operators with f(c x) = c f(x) for positive c, such as ReLU.

A positive factor after a (leaky) ReLU moves before the ReLU. A factor before the ReLU moves into
the weights of the layer that the ReLU reads. This module also merges 1 / sqrt(x) into one operator,
`slipstream.InverseRoot`, for which the native engine has a kernel.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream.infer.graph.graph import SLIPSTREAM, Node
from slipstream.infer.rewrites.affine import LAYERS
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite
from slipstream.infer.rewrites.patterns import operands

HOMOGENEOUS = ("LeakyRelu", "Relu")


def _before(editor: Editor, node: Node) -> Replacement:
    """Move a Mul by a positive number from behind a (leaky) ReLU to before the ReLU."""
    matched = operands(editor, node)
    bend = None if matched is None else editor.only(matched.value, *HOMOGENEOUS)
    if matched is None or bend is None or matched.constant.size != 1 or matched.constant.ndim > 1:
        return None
    if not matched.constant.item() > 0 or not _ends_in_layer(editor, bend.inputs[0]):
        return None
    scaled = editor.name(f"{node.output}_scaled")
    number = editor.add_constant(f"{node.output}_number", matched.constant)
    return [
        Node("Mul", [bend.inputs[0], number], [scaled]),
        Node(bend.op, [scaled], node.outputs, dict(bend.attributes), bend.domain, bend.name),
    ]


def _through(editor: Editor, node: Node) -> Replacement:
    """Move a Mul by a number before the Add of a constant, or the other Mul, that it follows."""
    matched = operands(editor, node)
    if matched is None or matched.constant.size != 1 or matched.constant.ndim > 1:
        return None
    if not _ends_in_layer(editor, matched.value) or editor.only(matched.value, *LAYERS):
        return None
    inner = editor.only(matched.value, "Add", "Mul")
    assert inner is not None
    base, other = _layer_first(editor, inner)
    if inner.op == "Add":
        shifted = editor.constant(other)
        assert shifted is not None
        other = editor.add_constant(other, np.asarray(shifted * matched.constant.reshape(())))
    scaled = editor.name(f"{node.output}_scaled")
    number = editor.add_constant(f"{node.output}_number", matched.constant)
    return [
        Node("Mul", [base, number], [scaled]),
        Node(inner.op, [scaled, other], node.outputs, name=inner.name),
    ]


def _ends_in_layer(editor: Editor, name: str) -> bool:
    """Return whether a value is the output of a layer.

    A Mul by a computed value, and Adds of constants, may follow the layer.
    """
    if editor.only(name, *LAYERS):
        return True
    node = editor.only(name, "Add", "Mul")
    if node is None or (node.op == "Add" and operands(editor, node) is None):
        return False
    base, _ = _layer_first(editor, node)
    return bool(base) and (node.op == "Add" or editor.only(base, *LAYERS) is not None)


def _layer_first(editor: Editor, node: Node) -> tuple[str, str]:
    """Return a pair: the operand that a layer computes, and the other operand.

    Both names are empty if no layer computes an operand.
    """
    for base, other in (node.inputs, node.inputs[::-1]):
        constant = editor.constant(other)
        suits = constant is not None if node.op == "Add" else constant is None
        if suits and editor.constant(base) is None and _ends_in_layer(editor, base):
            return base, other
    return "", ""


def _inverse_root(editor: Editor, node: Node) -> Replacement:
    root = editor.only(node.inputs[-1], "Sqrt")
    if root is None or editor.value(root.inputs[0]).dtype != np.float32:
        return None
    if node.op == "Div" and editor.scalar(node.inputs[0]) != 1:
        return None
    return [Node("InverseRoot", [root.inputs[0]], node.outputs, domain=SLIPSTREAM)]


LATE_REWRITES = (
    rewrite(
        "positive-factor",
        "a factor of the output of a (leaky) ReLU goes into the layer before it",
        _before,
        "Mul",
    ),
    rewrite(
        "factor-first",
        "a factor after Add or Mul goes into the layer before these",
        _through,
        "Mul",
    ),
    rewrite("inverse-root", "1 / sqrt(x) becomes one operator", _inverse_root, "Div", "Reciprocal"),
)
