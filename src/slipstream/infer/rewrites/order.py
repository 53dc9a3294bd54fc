"""Activations after a Transpose or Reshape move before it, so that they directly follow a layer."""

from __future__ import annotations

from dataclasses import replace

from slipstream.infer.graph.graph import Node
from slipstream.infer.rewrites.affine import LAYERS
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite
from slipstream.infer.rewrites.patterns import RESHAPES

LAYOUT = (*RESHAPES, "Transpose")
ACTIVATIONS = (
    *("HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"),
    *("slipstream.Gelu", "slipstream.Silu"),
)


def _activation_first(editor: Editor, node: Node) -> Replacement:
    between: list[Node] = []
    name = node.inputs[0]
    while (step := editor.only(name, *LAYOUT)) is not None:
        between.append(step)
        name = step.inputs[0]
    if not between or editor.only(name, *LAYERS) is None:
        return None
    output = editor.name(f"{node.output}_early")
    nodes = [replace(node, inputs=[name], outputs=[output], attributes=dict(node.attributes))]
    for step in reversed(between):
        is_last = step is between[0]
        moved = node.output if is_last else editor.name(f"{step.output}_late")
        nodes.append(
            replace(
                step,
                inputs=[output, *step.inputs[1:]],
                outputs=[moved],
                attributes=dict(step.attributes),
            )
        )
        output = moved
    return nodes


REWRITES = (
    rewrite(
        "activation-first",
        "an activation after Reshape and Transpose moves before them, next to the layer",
        _activation_first,
        *ACTIVATIONS,
    ),
)
