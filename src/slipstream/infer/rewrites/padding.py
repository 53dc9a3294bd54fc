"""Padding nodes become part of the convolution or pool that follows.

Models of Keras pad before each convolution of stride 2, because the padding mode SAME would add
more zeros at the end of an axis than at its beginning.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import replace

from slipstream.infer.graph.graph import Node
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite


def _zeros(editor: Editor, name: str) -> tuple[Node, list[int]] | None:
    """Return the Pad that computes a value, and its padding in the form of the attribute `pads`.

    The result is None unless the Pad only adds zeros, along the axes that come after the channels.
    """
    node = editor.producer(name, "Pad")
    if node is None or node.get("mode", "constant") != "constant" or len(node.inputs) > 3:
        return None
    value = editor.constant(node.inputs[2]) if len(node.inputs) == 3 and node.inputs[2] else 0
    pads = editor.constant(node.inputs[1])
    if pads is None or value is None or value != 0 or (pads < 0).any():
        return None
    low, high = pads.reshape(2, -1).tolist()
    return (node, [*low[2:], *high[2:]]) if not any((*low[:2], *high[:2])) else None


def _padded(editor: Editor, node: Node) -> Replacement:
    matched = _zeros(editor, node.inputs[0])
    if matched is None or node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("ceil_mode", 0):
        return None
    pad, pads = matched
    node_pads = node.get("pads") or [0] * len(pads)
    sums = [one + other for one, other in zip(node_pads, pads, strict=True)]
    if node.op == "MaxPool" and not _keeps_maximum(editor, node, pad, node_pads, sums):
        return None
    inputs = [pad.inputs[0], *node.inputs[1:]]
    attributes = {**node.attributes, "pads": sums}
    return [replace(node, inputs=inputs, outputs=list(node.outputs), attributes=attributes)]


def _keeps_maximum(
    editor: Editor, node: Node, pad: Node, node_pads: list[int], sums: list[int]
) -> bool:
    """Return whether MaxPool gives the same results with ignored padding as with zeros.

    The results are the same if no value is negative and each window contains at least one value.
    """
    kernel = node.get("kernel_shape")
    is_narrow = all(size < length for size, length in zip(sums, (*kernel, *kernel), strict=True))
    is_positive = editor.producer(pad.inputs[0], "Relu") is not None
    return is_positive and is_narrow and not any(node_pads) and len(node.outputs) == 1


REWRITES = (
    rewrite(
        "pads",
        "zeros around an image become padding of the convolution or pool that reads it",
        _padded,
        "Conv",
        "MaxPool",
    ),
)
