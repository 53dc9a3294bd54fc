"""Transposes between channels last and channels first are moved until two of them cancel.

If a framework has channels last, the importer puts a Transpose before and after each convolution
and pool. The Transpose after a convolution is moved behind the following nodes, as long as their
operators are elementwise, or have axes that can be renumbered.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slipstream.infer.graph.graph import Array, Attribute, Graph, Node, Value
from slipstream.infer.rewrites.editor import Editor, Replacement, Rewrite, kind
from slipstream.infer.rewrites.patterns import axes

# Operators whose outputs are images with channels first.
SOURCES = (
    *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace"),
    *("GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "MaxPool", "Resize"),
    *("SpaceToDepth",),
)
ELEMENTWISE = (
    *("Abs", "Add", "And", "Cast", "Ceil", "Celu", "Cos", "Div", "Elu", "Equal", "Erf", "Exp"),
    *("Floor", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf"),
    *("IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul"),
    *("Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid"),
    *("Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu"),
    *("Where", "Xor", "slipstream.Gelu", "slipstream.Silu"),
)
REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


@dataclass
class _Moved:
    """A node that is moved before a Transpose.

    Args:
        editor: Editor of the graph.
        node: The node as it is before the move.
        order: Attribute `perm` of the Transpose.
        before: Reshapes that undo the Transpose for the node's other operands.
    """

    editor: Editor
    node: Node
    order: list[int]
    before: list[Node] = field(default_factory=list[Node])

    def inner(self, name: str) -> str | None:
        """Undo the Transpose for one operand, and return the name of the result.

        The result is None if another Transpose would be necessary.
        """
        producer = self.editor.producer(name, "Transpose")
        if producer is not None and producer.get("perm") == self.order:
            return producer.inputs[0]
        array = self.editor.constant(name)
        if array is not None:
            return self._constant(name, array)
        return self._reshaped(name)

    def _constant(self, name: str, array: Array) -> str | None:
        if array.ndim > len(self.order):
            return None
        if array.size == 1:
            return name if array.ndim == 0 else self._new(array.reshape(()))
        whole = array.reshape((1,) * (len(self.order) - array.ndim) + array.shape)
        return self._new(np.ascontiguousarray(whole.transpose(_inverse(self.order))))

    def _new(self, array: Array) -> str:
        return self.editor.add_constant(f"{self.node.output}_moved", array)

    def _reshaped(self, name: str) -> str | None:
        """Undo the Transpose for one operand by a Reshape, and return the name of the result.

        The result is None if the Transpose reorders axes that are longer than 1.
        """
        shape = self.editor.shape(name)
        if shape is None or len(shape) > len(self.order):
            return None
        whole = (1,) * (len(self.order) - len(shape)) + shape
        places = _inverse(self.order)
        moved = [axis for axis in places if whole[axis] != 1]
        if moved != sorted(moved):
            return None
        sizes = np.array([whole[axis] for axis in places], np.int64)
        result = self.editor.name(f"{name}_moved")
        target = self.editor.add_constant(f"{result}_shape", sizes)
        self.before.append(Node("Reshape", [name, target], [result]))
        value = self.editor.value(name)
        self.editor.graph.values[result] = Value(value.dtype, tuple(sizes.tolist()))
        return result

    def placed(
        self,
        inputs: Sequence[str],
        attributes: Mapping[str, Attribute] | None = None,
        order: list[int] | None = None,
    ) -> list[Node]:
        """Return the node, moved before the Transpose, and new Transposes of its outputs.

        Args:
            inputs: Names of the operands for which the Transpose is undone.
            attributes: New values of the node's attributes that change (default none).
            order: Attribute `perm` of the new Transposes (default: `perm` of the old Transpose).
        """
        perm = self.order if order is None else order
        node, editor = self.node, self.editor
        if perm == sorted(perm):
            changed = {**node.attributes, **(attributes or {})}
            return [*self.before, replace(node, inputs=list(inputs), attributes=changed)]
        outputs = [editor.name(f"{output}_first") for output in node.outputs]
        for inner, output in zip(outputs, node.outputs, strict=True):
            value = editor.value(output)
            shape = value.shape
            if shape is not None:
                shape = tuple(shape[axis] for axis in _inverse(perm))
            editor.graph.values[inner] = Value(value.dtype, shape)
        changed = {**node.attributes, **(attributes or {})}
        first = replace(node, inputs=list(inputs), outputs=outputs, attributes=changed)
        after = [
            Node("Transpose", [inner], [output], {"perm": list(perm)})
            for inner, output in zip(outputs, node.outputs, strict=True)
        ]
        return [*self.before, first, *after]


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(axis) for axis in range(len(order))]


# ---- rules for nodes that can be moved --------------------------------------------------------


def _elementwise(moved: _Moved) -> Replacement:
    inputs = [moved.inner(name) for name in moved.node.inputs]
    matched = [name for name in inputs if name is not None]
    return moved.placed(matched) if len(matched) == len(inputs) else None


def _clip(moved: _Moved) -> Replacement:
    first, *bounds = moved.node.inputs
    inner = moved.inner(first)
    return None if inner is None else moved.placed([inner, *bounds])


def _along(moved: _Moved) -> Replacement:
    """Move an operator with the attribute `axis`, such as Concat, before the Transpose."""
    rank = len(moved.order)
    default = {"Concat": None, "Split": 0}.get(moved.node.op, -1)
    axis = moved.node.get("axis", default)
    operands = moved.node.inputs[:1] if moved.node.op == "Split" else moved.node.inputs
    inputs = [_whole(moved, name) for name in operands]
    matched = [name for name in inputs if name is not None]
    if len(matched) != len(inputs):
        return None
    rest = moved.node.inputs[len(operands) :]
    return moved.placed([*matched, *rest], {"axis": moved.order[axis % rank]})


def _whole(moved: _Moved, name: str) -> str | None:
    """Undo the Transpose for one operand, like `inner`, and keep all axes of a constant.

    The result is None if a constant has not as many axes as the Transpose.
    """
    array = moved.editor.constant(name)
    if array is None:
        return moved.inner(name)
    if array.ndim != len(moved.order):
        return None
    return moved.editor.add_constant(f"{name}_moved", array.transpose(_inverse(moved.order)))


def _pad(moved: _Moved) -> Replacement:
    data, *rest = moved.node.inputs
    pads = moved.editor.constant(rest[0]) if len(rest) in (1, 2) else None
    inner = moved.inner(data)
    if pads is None or inner is None:
        return None
    halves = pads.reshape(2, -1)[:, _inverse(moved.order)].reshape(-1)
    name = moved.editor.add_constant(f"{moved.node.output}_pads", halves)
    return moved.placed([inner, name, *rest[1:]])


def _slice(moved: _Moved) -> Replacement:
    if len(moved.node.inputs) < 4 or not moved.node.inputs[3]:
        return None
    data, starts, ends, over, *steps = moved.node.inputs
    array, inner = moved.editor.constant(over), moved.inner(data)
    if array is None or inner is None:
        return None
    renamed = np.array([moved.order[axis] for axis in array.tolist()], array.dtype)
    name = moved.editor.add_constant(f"{moved.node.output}_axes", renamed)
    return moved.placed([inner, starts, ends, name, *steps])


def _reduction(moved: _Moved) -> Replacement:
    """Move a reduction before the Transpose.

    No Transpose follows the reduction if the remaining axes keep their order.
    """
    node, editor, order = moved.node, moved.editor, moved.order
    over, inner = axes(editor, node), moved.inner(node.inputs[0])
    if over is None or inner is None:
        return None
    renamed = sorted(order[axis] for axis in over)
    left = order
    if not node.get("keepdims", 1):
        kept = [axis for at, axis in enumerate(order) if at not in over]
        left = [sorted(kept).index(axis) for axis in kept]
    if len(node.inputs) == 1:
        return moved.placed([inner], {"axes": renamed}, left)
    name = editor.add_constant(f"{node.output}_axes", np.array(renamed, np.int64))
    return moved.placed([inner, name], None, left)


RULES: dict[str, Callable[[_Moved], Replacement]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("Concat", "LogSoftmax", "Softmax", "Split"), _along),
    "Clip": _clip,
    "Pad": _pad,
    "Slice": _slice,
}


# ---- the pass ---------------------------------------------------------------------------------


def _images(graph: Graph) -> set[str]:
    """Return the names of values that are images with channels first.

    These are the outputs of the operators in `SOURCES`. Outputs of nodes that read such an image
    are included, too, if `RULES` has a rule for the operator of the node.
    """
    matched: set[str] = set()
    for node in graph.nodes:
        if kind(node) in SOURCES or (kind(node) in RULES and not matched.isdisjoint(node.inputs)):
            matched.update(node.outputs)
    return matched


def _order(editor: Editor, node: Node, images: set[str]) -> list[int] | None:
    """Return the attribute `perm` of a Transpose whose output the node reads.

    The Transpose must turn one of `images` from channels first to channels last. The result is None
    if the node reads no output of such a Transpose.
    """
    for name in node.inputs:
        before = editor.producer(name, "Transpose")
        if before is None or before.inputs[0] not in images:
            continue
        order = before.get("perm")
        if order == [0, *range(2, len(order)), 1]:
            return list(order)
    return None


def _sink(graph: Graph) -> int:
    editor, images, count = Editor(graph), _images(graph), 0
    for node in list(graph.nodes):
        rule = RULES.get(kind(node))
        order = None if rule is None or not editor.has(node) else _order(editor, node, images)
        if rule is None or order is None:
            continue
        nodes = rule(_Moved(editor, node, order))
        count += editor.put(nodes, instead_of=node)
        images.update(output for item in nodes or () for output in _outputs(item))
    editor.close()
    return count


def _outputs(node: Node | str) -> list[str]:
    return [] if isinstance(node, str) or node.op == "Transpose" else node.outputs


REWRITES = (
    Rewrite(
        "channels-first",
        "Transposes after convolutions and pools move on until two cancel",
        _sink,
    ),
)
