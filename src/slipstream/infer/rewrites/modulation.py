"""Modulated convolutions with constant weights (Karras et al. 2020, StyleGAN2, section 2.2).

A modulated convolution multiplies its weights W[o, i] by a style s[i], and perhaps also by d[o] = 1
/ sqrt(sum((W s)^2) + epsilon). The result equals the convolution of x s with the constant W, times
d. The sum in d is the product of s^2 and a constant matrix of squares of W. So an engine need not
compute the weights again for each input.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slipstream.infer.graph.graph import Array, Node
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite
from slipstream.infer.rewrites.patterns import (
    RESHAPES,
    axes,
    inverse_root,
    plus_epsilon,
    reshaped,
    squared,
)


@dataclass(frozen=True, slots=True)
class ModulatedProduct:
    """Weights that are the product of a constant and a style, perhaps normalised.

    Args:
        weight: The constant, W.
        style: Name of the style, which has one number per input channel.
        style_axis: Axis of the constant along which the style varies.
        epsilon: Number that is added to the sum of squares; None if the weights are not normalised.
        shape: Shape of the product, before Reshape and Transpose change its layout.
        demodulated_axis: Axis of the constant along which the squares are not summed (default 0).
    """

    weight: Array
    style: str
    style_axis: int
    epsilon: float | None
    shape: tuple[int, ...]
    demodulated_axis: int = 0


def _modulated_conv(editor: Editor, node: Node) -> Replacement:
    """Replace a modulated Conv or ConvTranspose (of one group) by one with constant weights."""
    bias = None if len(node.inputs) < 3 else editor.constant(node.inputs[2])
    if (len(node.inputs) > 2 and bias is None) or node.get("group", 1) != 1:
        return None
    layout, product = _layout(editor, node.inputs[1])
    matched = _weights(editor, product)
    if matched is None:
        return None
    weight = _laid_out(editor, matched.weight, matched.shape, layout)
    channels = _axis(editor, matched, matched.style_axis, layout)
    outputs = _axis(editor, matched, matched.demodulated_axis, layout)
    inputs_at, outputs_at = (1, 0) if node.op == "Conv" else (0, 1)
    is_image = weight.ndim == editor.rank(node.inputs[0])
    if not is_image or channels != inputs_at:
        return None
    if matched.epsilon is not None and outputs != outputs_at:
        return None
    return _scaled_conv(editor, node, matched, np.ascontiguousarray(weight))


def _layout(editor: Editor, name: str) -> tuple[list[Node], str]:
    """Return the chain of nodes that change only the layout of a value, and the chain's input.

    The nodes are in reverse order: the node that computes the value comes first.
    """
    node = editor.only(name, "Transpose", *RESHAPES)
    if node is None or editor.shape(name) is None:
        return [], name
    nodes, inner = _layout(editor, node.inputs[0])
    return [node, *nodes], inner


def _laid_out(editor: Editor, array: Array, shape: tuple[int, ...], layout: list[Node]) -> Array:
    """Broadcast an array to a shape, and apply the layout operators to the result."""
    array = np.broadcast_to(array, shape)
    for node in reversed(layout):
        if node.op == "Transpose":
            array = array.transpose(node.get("perm"))
        else:
            array = array.reshape(editor.shape(node.output) or ())
    return array


def _axis(editor: Editor, matched: ModulatedProduct, axis: int, layout: list[Node]) -> int | None:
    """Return the position of an axis of the weights after the layout operators.

    The result is None if the axis was split, or merged with another axis.
    """
    size = matched.shape[axis]
    places = np.arange(size).reshape(-1, *[1] * (len(matched.shape) - axis - 1))
    result = _laid_out(editor, places, matched.shape, layout)
    for at, length in enumerate(result.shape):
        line = np.arange(size).reshape(-1, *[1] * (result.ndim - at - 1))
        if length == size > 1 and (result == line).all():
            return at
    return None


def _weights(editor: Editor, name: str) -> ModulatedProduct | None:
    """Return W, s and epsilon for a value W s, or W s / sqrt(sum((W s)^2) + epsilon); else None."""
    node = editor.only(name, "Mul")
    plain = None if node is None else _styled(editor, node)
    if node is None or plain is not None:
        return plain
    for product, factor in (node.inputs, node.inputs[::-1]):
        inner = editor.producer(product, "Mul")
        matched = None if inner is None else _styled(editor, inner)
        norm = None if matched is None else _norm(editor, reshaped(editor, factor), product)
        if matched is None or norm is None:
            continue
        epsilon, axis = norm
        if _long_axis(editor.shape(factor), len(matched.shape)) == axis:
            return replace(matched, epsilon=epsilon, demodulated_axis=axis)
    return None


def _styled(editor: Editor, node: Node) -> ModulatedProduct | None:
    """Return W and s if the node computes W s, where s scales W along one axis; else None.

    W must be a constant.
    """
    shape = editor.shape(node.output)
    for constant, style in (node.inputs, node.inputs[::-1]):
        weight = editor.constant(constant)
        if weight is None or shape is None or weight.dtype != np.float32:
            continue
        axis = _long_axis(editor.shape(style), len(shape))
        if axis is not None and weight.size == np.prod(shape):
            return ModulatedProduct(weight, style, axis, None, shape)
    return None


def _long_axis(shape: tuple[int, ...] | None, rank: int) -> int | None:
    """Return the only axis that is longer than 1.

    To count axes, the shape is extended to `rank` sizes by leading ones, as broadcasting does. The
    result is None if no axis, or more than one axis, is longer than 1.
    """
    long = [axis for axis, size in enumerate(shape or ()) if size > 1]
    return long[0] + rank - len(shape) if shape is not None and len(long) == 1 else None


def _norm(editor: Editor, name: str, product: str) -> tuple[float, int] | None:
    """Return epsilon and an axis if a value is 1 / sqrt(sum(product^2) + epsilon); else None.

    The axis is the only long axis of the product that is not summed.
    """
    inner = inverse_root(editor, name)
    matched = None if inner is None else plus_epsilon(editor, inner)
    total = None if matched is None else editor.only(reshaped(editor, matched[0]), "ReduceSum")
    if matched is None or total is None or squared(editor, total.inputs[0]) != product:
        return None
    over, shape = axes(editor, total), editor.shape(product)
    if over is None or shape is None:
        return None
    left = [axis for axis, size in enumerate(shape) if axis not in over and size > 1]
    return (matched[1], left[0]) if len(left) == 1 else None


def _scaled_conv(
    editor: Editor, node: Node, matched: ModulatedProduct, weight: Array
) -> Replacement:
    """Return the nodes of a modulated convolution with constant weights.

    The nodes compute x s, the convolution of x s with the weights, and the product with d.
    """
    rank = weight.ndim
    is_conv = node.op == "Conv"
    num_inputs, num_outputs = weight.shape[:2][::-1] if is_conv else weight.shape[:2]
    stem = node.output
    style, x = (editor.name(f"{stem}_{suffix}") for suffix in ("style", "styled"))
    nodes = [
        _reshape(editor, matched.style, style, (1, num_inputs, *[1] * (rank - 2))),
        Node("Mul", [node.inputs[0], style], [x]),
    ]
    name = editor.add_constant(f"{stem}_weight", weight)
    attributes, bias = dict(node.attributes), node.inputs[2:]
    if matched.epsilon is None:
        return [*nodes, Node(node.op, [x, name, *bias], node.outputs, attributes, name=node.name)]
    squares = np.square(weight, dtype=np.float64).sum(axis=tuple(range(2, rank)))
    lengths = (squares.T if is_conv else squares).astype(np.float32)
    names = ("plain", "scale", "scale_channels")
    plain, scale, channels = (editor.name(f"{stem}_{suffix}") for suffix in names)
    nodes += [
        Node(node.op, [x, name], [plain], attributes, name=node.name),
        *_demodulation(editor, matched, np.ascontiguousarray(lengths), scale),
        _reshape(editor, scale, channels, (1, num_outputs, *[1] * (rank - 2))),
    ]
    if not bias:
        return [*nodes, Node("Mul", [plain, channels], node.outputs)]
    shift = editor.graph.constants[bias[0]].reshape(-1, *[1] * (rank - 2))
    scaled = editor.name(f"{stem}_scaled")
    return [
        *nodes,
        Node("Mul", [plain, channels], [scaled]),
        Node("Add", [scaled, editor.add_constant(f"{stem}_bias", shift)], node.outputs),
    ]


def _demodulation(
    editor: Editor, matched: ModulatedProduct, lengths: Array, scale: str
) -> list[Node]:
    """Return the nodes that compute d[1, outputs] from s and sums of squares [inputs, outputs]."""
    names = [
        editor.name(f"{scale}_{suffix}") for suffix in ("style", "squares", "sums", "sum", "root")
    ]
    matrix = editor.add_constant(f"{scale}_matrix", lengths)
    epsilon = editor.add_constant(f"{scale}_epsilon", np.array(matched.epsilon, np.float32))
    one = editor.add_constant(f"{scale}_one", np.ones((), np.float32))
    style, squares, sums, total, root = names
    return [
        _reshape(editor, matched.style, style, (1, lengths.shape[0])),
        Node("Mul", [style, style], [squares]),
        Node("MatMul", [squares, matrix], [sums]),
        Node("Add", [sums, epsilon], [total]),
        Node("Sqrt", [total], [root]),
        Node("Div", [one, root], [scale]),
    ]


def _reshape(editor: Editor, name: str, output: str, shape: tuple[int, ...]) -> Node:
    sizes = editor.add_constant(f"{output}_shape", np.array(shape, np.int64))
    return Node("Reshape", [name, sizes], [output])


REWRITES = (
    rewrite(
        "modulated-conv",
        "the style of modulated weights scales inputs and outputs, and the weights are constant",
        _modulated_conv,
        *("Conv", "ConvTranspose"),
    ),
)
