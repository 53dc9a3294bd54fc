"""Normalisation over the last axes: the means and roots that exporters write become one operator.

LayerNormalization is an operator of ONNX from operator set 17 on. `slipstream.RmsNorm(x, scale)`
with the attributes `axis` and `epsilon` is x / sqrt(mean(x^2) + epsilon) * scale. The mean is over
the axis `axis` and all axes after it.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.infer.graph.graph import SLIPSTREAM, Array, Node
from slipstream.infer.rewrites.editor import Editor, Replacement, kind, rewrite
from slipstream.infer.rewrites.patterns import (
    axes,
    inverse_root,
    operands,
    plus_epsilon,
    squared,
)

LAYER_NORM_OPSET = 17
NORMS = ("LayerNormalization", "slipstream.RmsNorm")


@dataclass(frozen=True, slots=True)
class Normalised:
    """A value divided by the root of the mean of its squares.

    Args:
        x: Name of the value that is divided.
        axes: Axes over which the mean is taken.
        epsilon: Number that is added to the mean of the squares.
    """

    x: str
    axes: Sequence[int]
    epsilon: float


def _normalised(editor: Editor, node: Node) -> Normalised | None:
    """Return x, axes and epsilon if a node computes x / sqrt(mean(x^2) + epsilon); else None.

    The node may be a Div by the root, or a Mul by 1 / root.
    """
    if node.op == "Div":
        root = editor.only(node.inputs[1], "Sqrt")
        orders = [] if root is None else [(node.inputs[0], root.inputs[0])]
    else:
        one, other = node.inputs
        matched = [(one, inverse_root(editor, other)), (other, inverse_root(editor, one))]
        orders = [(x, variance) for x, variance in matched if variance is not None]
    for x, variance in orders:
        matched = _mean_square(editor, x, variance)
        if matched is not None:
            return matched
    return None


def _mean_square(editor: Editor, x: str, variance: str) -> Normalised | None:
    """Return x, the axes and epsilon if a value is mean(x^2) + epsilon, else None."""
    matched = plus_epsilon(editor, variance)
    mean = None if matched is None else editor.only(matched[0], "ReduceMean")
    if matched is None or mean is None or mean.get("keepdims", 1) != 1:
        return None
    over, rank = axes(editor, mean), editor.rank(x)
    if over is None or rank is None or over != list(range(over[0], rank)):
        return None
    return Normalised(x, over, matched[1]) if squared(editor, mean.inputs[0]) == x else None


def _centred(editor: Editor, matched: Normalised) -> str | None:
    """Return y if the normalised value is y - mean(y) over the same axes, else None."""
    difference = editor.producer(matched.x, "Sub")
    mean = None if difference is None else editor.producer(difference.inputs[1], "ReduceMean")
    if difference is None or mean is None or mean.inputs[0] != difference.inputs[0]:
        return None
    is_same_mean = axes(editor, mean) == matched.axes and mean.get("keepdims", 1) == 1
    return mean.inputs[0] if is_same_mean else None


def _ones(editor: Editor, name: str, over: Sequence[int]) -> str | None:
    value = editor.value(name)
    sizes = value.shape[over[0] :] if value.shape is not None else (None,)
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) != len(sizes) or value.dtype != np.float32:
        return None
    return editor.add_constant(f"{name}_ones", np.ones(fixed, np.float32))


def _layer_norm(editor: Editor, node: Node) -> Replacement:
    matched = _normalised(editor, node) if editor.opset >= LAYER_NORM_OPSET else None
    x = None if matched is None else _centred(editor, matched)
    ones = None if matched is None or x is None else _ones(editor, x, matched.axes)
    if matched is None or x is None or ones is None:
        return None
    attributes = {"axis": -len(matched.axes), "epsilon": matched.epsilon}
    return [Node("LayerNormalization", [x, ones], node.outputs, {**attributes}, name=node.name)]


def _rms_norm(editor: Editor, node: Node) -> Replacement:
    matched = _normalised(editor, node)
    if matched is None or _centred(editor, matched) is not None:
        return None
    ones = _ones(editor, matched.x, matched.axes)
    if ones is None:
        return None
    attributes = {"axis": -len(matched.axes), "epsilon": matched.epsilon}
    return [Node("RmsNorm", [matched.x, ones], node.outputs, {**attributes}, SLIPSTREAM, node.name)]


def _scaled_norm(editor: Editor, node: Node) -> Replacement:
    """Fold a Mul or Add of a constant into the scale or the bias of the normalisation before it.

    The constant must be the same for all vectors that are normalised.
    """
    matched = operands(editor, node)
    norm = None if matched is None else editor.only(matched.value, *NORMS)
    scale = None if norm is None else editor.constant(norm.inputs[1])
    if matched is None or norm is None or scale is None or any(norm.outputs[1:]):
        return None
    constant = _over(matched.constant, scale, editor.rank(norm.output))
    has_bias = len(norm.inputs) > 2
    if constant is None or has_bias or (node.op == "Add" and kind(norm) != NORMS[0]):
        return None
    x, scale_name = norm.inputs
    if node.op == "Mul":
        inputs = [x, editor.add_constant(f"{node.output}_scale", scale * constant)]
    else:
        inputs = [x, scale_name, editor.add_constant(f"{node.output}_bias", constant)]
    return [Node(norm.op, inputs, node.outputs, norm.attributes, norm.domain, norm.name)]


def _over(constant: Array, scale: Array, rank: int | None) -> Array | None:
    """Return a constant in the scale's shape; None if it varies along axes that the scale lacks."""
    if rank is None or constant.ndim > rank:
        return None
    trailing = constant.shape[max(0, constant.ndim - scale.ndim) :]
    if constant.size != np.prod(trailing, dtype=int):
        return None
    constant = constant.reshape(trailing)
    if np.broadcast_shapes(constant.shape, scale.shape) != scale.shape:
        return None
    return np.ascontiguousarray(np.broadcast_to(constant, scale.shape))


REWRITES = (
    rewrite(
        "layer-norm",
        "(x - mean) / sqrt(variance + epsilon) becomes one operator",
        _layer_norm,
        "Div",
        "Mul",
    ),
    rewrite(
        "rms-norm", "x / sqrt(mean(x^2) + epsilon) becomes one operator", _rms_norm, "Div", "Mul"
    ),
    rewrite(
        "scaled-norm",
        "a scale and a shift after a normalisation go into it",
        _scaled_norm,
        "Add",
        "Mul",
    ),
)
