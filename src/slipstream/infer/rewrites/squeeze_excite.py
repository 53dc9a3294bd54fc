"""Squeeze-and-excitation (Hu et al. 2017): a function of all channels' means scales each channel.

`slipstream.SqueezeExcite(x, w1[C, R], b1[R], w2[R, C], b2[C])` is x gate(act(mean(x) w1 + b1) w2 +
b2). The mean is over height and width. The attribute `activation` names the operator that
computes `act` (Relu, Silu or HardSwish). The attribute `gate` names the operator that computes
`gate`: Sigmoid, or HardSigmoid with alpha 1/6 and beta 1/2.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.infer.graph.graph import SLIPSTREAM, Array, Node
from slipstream.infer.rewrites.activations import is_sixth
from slipstream.infer.rewrites.affine import layer_of
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite
from slipstream.infer.rewrites.patterns import axes, reshaped

ACTIVATIONS = ("Relu", "slipstream.Silu", "HardSwish")


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer, or a 1 x 1 convolution of an image of one pixel.

    Args:
        x: Name of the layer's input.
        weight: Weights of shape [inputs, outputs].
        bias: Bias of shape [outputs].
    """

    x: str
    weight: Array
    bias: Array


def _squeeze_excite(editor: Editor, node: Node) -> Replacement:
    for x, gated in (node.inputs, node.inputs[::-1]):
        shape = editor.value(x).shape
        if shape is None or len(shape) != 4:
            continue
        if editor.value(gated).shape not in ((shape[0], shape[1], 1, 1), (1, shape[1], 1, 1)):
            continue
        matched = _excitation(editor, gated, x)
        if matched is not None:
            return [_node(editor, node, x, *matched)]
    return None


def _node(
    editor: Editor, node: Node, x: str, gate: Node, activation: Node, layers: tuple[Dense, Dense]
) -> Node:
    arrays = [array for layer in layers for array in (layer.weight, layer.bias)]
    names = [editor.add_constant(f"{node.output}_se", array) for array in arrays]
    attributes = {"activation": activation.op, "gate": gate.op}
    return Node("SqueezeExcite", [x, *names], node.outputs, {**attributes}, SLIPSTREAM, node.name)


def _excitation(
    editor: Editor, gated: str, x: str
) -> tuple[Node, Node, tuple[Dense, Dense]] | None:
    """Return the gate, the activation and the two layers that compute scales for x's channels."""
    gate = editor.only(reshaped(editor, gated), "Sigmoid", "HardSigmoid")
    if gate is None or (gate.op == "HardSigmoid" and not is_sixth(gate)):
        return None
    second = _dense(editor, gate.inputs[0])
    activation = None if second is None else editor.only(reshaped(editor, second.x), *ACTIVATIONS)
    first = None if activation is None else _dense(editor, activation.inputs[0])
    if first is None or second is None or activation is None:
        return None
    pool = editor.only(reshaped(editor, first.x), "GlobalAveragePool", "ReduceMean")
    channels = (editor.value(x).shape or (0, 0))[1]
    is_chain = first.weight.shape == second.weight.shape[::-1] == (channels, len(first.bias))
    if pool is None or pool.inputs[0] != x or not is_chain:
        return None
    if pool.op == "ReduceMean" and axes(editor, pool) != [2, 3]:
        return None
    return gate, activation, (first, second)


def _dense(editor: Editor, name: str) -> Dense | None:
    layer = layer_of(editor, reshaped(editor, name))
    if layer is None or layer.node.op == "ConvTranspose":
        return None
    weight = layer.weight
    if layer.node.op == "Conv":
        is_padded = any(layer.node.get("pads", ()))
        if weight.shape[2:] != (1, 1) or layer.node.get("group", 1) != 1 or is_padded:
            return None
        weight = np.ascontiguousarray(weight[:, :, 0, 0].T)
    bias = np.zeros(weight.shape[1], weight.dtype) if layer.bias is None else layer.bias
    return Dense(layer.node.inputs[0], weight, bias)


REWRITES = (
    rewrite(
        "squeeze-excite",
        "the mean of each channel, two small layers and a gate become one operator",
        _squeeze_excite,
        "Mul",
    ),
)
