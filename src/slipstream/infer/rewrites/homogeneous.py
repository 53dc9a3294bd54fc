"""Positive numbers pass through what is linear on each side of zero: f(c x) = c f(x).

So a number that is multiplied after a (leaky) ReLU goes before it, and on to the layer whose
weights take it in. Also the root's inverse as one operator, which has a kernel of its own.
"""

# NumPy's stubs leave the types of what its methods return open.
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
    """Mul by a positive number: before a (leaky) ReLU."""
    found = operands(editor, node)
    bend = None if found is None else editor.only(found.value, *HOMOGENEOUS)
    if found is None or bend is None or found.constant.size != 1 or found.constant.ndim > 1:
        return None
    if not found.constant.item() > 0 or not _ends_in_layer(editor, bend.inputs[0]):
        return None
    scaled = editor.name(f"{node.output}_scaled")
    number = editor.add_constant(f"{node.output}_number", found.constant)
    return [
        Node("Mul", [bend.inputs[0], number], [scaled]),
        Node(bend.op, [scaled], node.outputs, dict(bend.attributes), bend.domain, bend.name),
    ]


def _through(editor: Editor, node: Node) -> Replacement:
    """Mul by a number: before Add of a constant, and before Mul by another value."""
    found = operands(editor, node)
    if found is None or found.constant.size != 1 or found.constant.ndim > 1:
        return None
    if not _ends_in_layer(editor, found.value) or editor.only(found.value, *LAYERS):
        return None
    inner = editor.only(found.value, "Add", "Mul")
    assert inner is not None
    base, other = _layer_first(editor, inner)
    if inner.op == "Add":
        shifted = editor.constant(other)
        assert shifted is not None
        other = editor.add_constant(other, np.asarray(shifted * found.constant.reshape(())))
    scaled = editor.name(f"{node.output}_scaled")
    number = editor.add_constant(f"{node.output}_number", found.constant)
    return [
        Node("Mul", [base, number], [scaled]),
        Node(inner.op, [scaled, other], node.outputs, name=inner.name),
    ]


def _ends_in_layer(editor: Editor, name: str) -> bool:
    """Tell whether a value is a layer's result, perhaps scaled and plus a constant."""
    if editor.only(name, *LAYERS):
        return True
    node = editor.only(name, "Add", "Mul")
    if node is None or (node.op == "Add" and operands(editor, node) is None):
        return False
    base, _ = _layer_first(editor, node)
    return bool(base) and (node.op == "Add" or editor.only(base, *LAYERS) is not None)


def _layer_first(editor: Editor, node: Node) -> tuple[str, str]:
    """Return the operand that ends in a layer and the other one, or two empty names."""
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
        "a number multiplied after a (leaky) ReLU goes before it, and into the layer",
        _before,
        "Mul",
    ),
    rewrite(
        "factor-first",
        "a number multiplied after a value and a constant goes into the layer before these",
        _through,
        "Mul",
    ),
    rewrite("inverse-root", "1 / sqrt(x) is one operator", _inverse_root, "Div", "Reciprocal"),
)
