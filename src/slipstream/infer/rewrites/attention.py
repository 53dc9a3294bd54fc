"""Multi-head attention (Vaswani et al. 2017) as one operator.

`slipstream.Attention(q, k, v, mask)` is softmax(scale q k^T + mask) v in each head. The operand q
has the shape (batch, tokens, heads * size). The operands k and v have the shape (batch, other
tokens, heads * size). The mask is optional and broadcasts to (batch, heads, tokens, other tokens).
The attributes of Attention are `heads` and `scale`. The heads are adjacent in the last axis, so the
operator needs no Transpose before it or after it. An engine need not store the scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slipstream.infer.graph.graph import SLIPSTREAM, Node, Value
from slipstream.infer.rewrites.affine import LINEAR, linear
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite
from slipstream.infer.rewrites.patterns import axes, is_same

ATTENTION = "slipstream.Attention"


@dataclass(frozen=True, slots=True)
class Heads:
    """The place of an operand (q, k or v) of attention in a tensor of the graph.

    The tensor has the shape (batch, tokens, parts * heads * size).

    Args:
        source: Name of the tensor that contains the operand.
        heads: Number of heads.
        size: Number of channels of a head.
        part: Index of the operand among the parts of the tensor (default 0).
        parts: Number of operands that the tensor contains (default 1), for example 3 if it contains
            q, k and v.
        scale: Factor by which the operand is multiplied (default 1).
    """

    source: str
    heads: int
    size: int
    part: int = 0
    parts: int = 1
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores scale q k^T + mask, which an attention's softmax reads.

    Args:
        query: Place of the queries q in a tensor of the graph.
        key: Place of the keys k in a tensor of the graph.
        scale: Factor by which the product of queries and keys is multiplied.
        mask: Name of the mask that is added to the scaled product; None if there is no mask.
    """

    query: Heads
    key: Heads
    scale: float
    mask: str | None


def _attention(editor: Editor, node: Node) -> Replacement:
    """Replace Reshape(Transpose(MatMul(Softmax(scores), v))) by slipstream.Attention.

    The scores must have a form that `_scores` accepts.
    """
    order = editor.only(node.inputs[0], "Transpose")
    product = None if order is None else editor.only(order.inputs[0], "MatMul")
    if order is None or product is None or order.get("perm") != [0, 2, 1, 3]:
        return None
    softmax = editor.only(product.inputs[0], "Softmax")
    value = _heads(editor, product.inputs[1])
    if softmax is None or value is None or softmax.get("axis", -1) not in (-1, 3):
        return None
    scores = _scores(editor, softmax.inputs[0])
    if scores is None or not _fits(editor, node, scores, value):
        return None
    operands, nodes = _operands(editor, (scores.query, scores.key, value))
    inputs = operands if scores.mask is None else [*operands, scores.mask]
    attributes = {"heads": value.heads, "scale": scores.scale * value.scale}
    if value.scale != 1:
        return None
    return [
        *nodes,
        Node("Attention", inputs, node.outputs, {**attributes}, SLIPSTREAM, node.name),
    ]


def _fits(editor: Editor, node: Node, scores: Scores, value: Heads) -> bool:
    """Return whether the node's output has the shape of q (batch, tokens, heads * size).

    The number of heads, and the size of a head, must also be the same for q, k and v.
    """
    sizes = {(heads.heads, heads.size) for heads in (scores.query, scores.key, value)}
    result, tokens = editor.value(node.output).shape, editor.value(scores.query.source).shape
    if len(sizes) > 1 or result is None or tokens is None or len(result) != 3:
        return False
    return is_same(result[1], tokens[1]) and result[2] == value.heads * value.size


def _scores(editor: Editor, name: str) -> Scores | None:
    """Return q, k, scale and mask if a value is scale q k^T, perhaps plus a mask; else None."""
    matched = _product(editor, name)
    node = editor.only(name, "Add")
    if matched is not None or node is None:
        return matched
    for scaled, mask in (node.inputs, node.inputs[::-1]):
        matched = _product(editor, scaled)
        if matched is not None and _broadcasts(editor.value(mask), editor.value(scaled)):
            return replace(matched, mask=mask)
    return None


def _broadcasts(mask: Value, scores: Value) -> bool:
    """Return whether the scores keep their shape when the mask is added."""
    if mask.shape is None or scores.shape is None or len(mask.shape) > len(scores.shape):
        return False
    pairs = zip(mask.shape[::-1], scores.shape[::-1], strict=False)
    return all(one == 1 or is_same(one, other) for one, other in pairs)


def _product(editor: Editor, name: str) -> Scores | None:
    scale, name = _scaled(editor, name)
    product = editor.only(name, "MatMul")
    if product is None:
        return None
    query = _heads(editor, product.inputs[0])
    key = _heads(editor, product.inputs[1], is_turned=True)
    if query is None or key is None:
        return None
    return Scores(query, key, scale * query.scale * key.scale, None)


def _scaled(editor: Editor, name: str) -> tuple[float, str]:
    """Return the scalar factor of a value (1 if it has none), and the name of the other factor."""
    node = editor.only(name, "Mul", "Div")
    if node is None:
        return 1.0, name
    left, right = node.inputs
    if node.op == "Mul" and editor.scalar(left) is not None:
        left, right = right, left
    number = editor.scalar(right)
    if not number:
        return 1.0, name
    scale, inner = _scaled(editor, left)
    return (scale * number if node.op == "Mul" else scale / number), inner


def _heads(editor: Editor, name: str, *, is_turned: bool = False) -> Heads | None:
    """Return the place in the graph of an operand of attention; None if the value is no operand.

    The value must have the shape (batch, heads, tokens, size), or, if `is_turned`, the shape
    (batch, heads, size, tokens) of transposed keys.
    """
    scale, name = _scaled(editor, name)
    if is_turned:
        order = editor.only(name, "Transpose")
        if order is None:
            return None
        if order.get("perm") == [0, 1, 3, 2]:
            matched = _heads(editor, order.inputs[0])
            return None if matched is None else replace(matched, scale=matched.scale * scale)
        matched = _side_by_side(editor, order, [0, 2, 3, 1])
    else:
        order = editor.only(name, "Transpose")
        matched = (
            _part(editor, name) if order is None else _side_by_side(editor, order, [0, 2, 1, 3])
        )
    return None if matched is None else replace(matched, scale=scale)


def _side_by_side(editor: Editor, order: Node, perm: list[int]) -> Heads | None:
    """Return the place of an operand Transpose(Reshape(x)), or None.

    The tensor x has the shape (batch, tokens, heads * size).
    """
    split = editor.only(order.inputs[0], "Reshape")
    if split is None or order.get("perm") != perm:
        return None
    old, new = editor.value(split.inputs[0]).shape, editor.value(split.output).shape
    if old is None or new is None or len(old) != 3 or len(new) != 4 or not is_same(old[1], new[1]):
        return None
    heads, size = new[2:]
    if not isinstance(heads, int) or not isinstance(size, int) or old[2] != heads * size:
        return None
    return Heads(split.inputs[0], heads, size)


def _part(editor: Editor, name: str) -> Heads | None:
    """Return the place of an operand that is one of several parts of a tensor, or None.

    The tensor has the shape (batch, tokens, parts * heads * size).
    """
    matched = _selected(editor, name)
    if matched is None:
        return None
    part, source = matched
    order = editor.producer(source, "Transpose")
    split = None if order is None else editor.only(order.inputs[0], "Reshape")
    if order is None or split is None or order.get("perm") != [2, 0, 3, 1, 4]:
        return None
    old, new = editor.value(split.inputs[0]).shape, editor.value(split.output).shape
    if old is None or new is None or len(old) != 3 or len(new) != 5 or not is_same(old[1], new[1]):
        return None
    sizes = [size for size in new[2:] if isinstance(size, int)]
    if len(sizes) != 3 or old[2] != np.prod(sizes):
        return None
    return Heads(split.inputs[0], sizes[1], sizes[2], part, sizes[0])


def _selected(editor: Editor, name: str) -> tuple[int, str] | None:
    """Return i and the name of s if a value is s[i], the element of s at one constant index.

    The index counts along the first axis of s. The result is None for any other value.
    """
    node = editor.only(name, "Gather", "Squeeze", "Reshape")
    if node is None:
        return None
    source = node.inputs[0]
    if node.op == "Gather":
        index = editor.constant(node.inputs[1])
        is_element = index is not None and index.ndim == 0 and node.get("axis", 0) == 0
        size = (editor.value(source).shape or (None,))[0]
        if not is_element or index is None or not isinstance(size, int):
            return None
        return int(index) % size, source
    if not _drops_first(editor, node):
        return None
    part = editor.only(source, "Split", "Slice")
    if part is None:
        return None
    if part.op == "Slice":
        return _sliced(editor, part)
    return (part.outputs.index(source), part.inputs[0]) if part.get("axis", 0) == 0 else None


def _drops_first(editor: Editor, node: Node) -> bool:
    """Return whether a Squeeze or Reshape only removes a first axis of length 1."""
    if node.op == "Squeeze":
        return axes(editor, node) == [0]
    old, new = editor.shape(node.inputs[0]), editor.shape(node.output)
    return old is not None and new is not None and old == (1, *new)


def _sliced(editor: Editor, node: Node) -> tuple[int, str] | None:
    """Return i and the name of s if a Slice computes s[i : i + 1] on the first axis, else None."""
    arrays = [editor.constant(name) for name in node.inputs[1:]]
    numbers = [array.tolist() for array in arrays if array is not None]
    if len(numbers) != len(arrays) or len(numbers) < 3 or any(len(item) > 1 for item in numbers):
        return None
    (start,), (end,), (axis,) = numbers[:3]
    return (start, node.inputs[0]) if axis == 0 <= start == end - 1 else None


def _operands(editor: Editor, heads: tuple[Heads, Heads, Heads]) -> tuple[list[str], list[Node]]:
    """Return the names of q, k and v, and the Split nodes that compute them.

    A tensor that contains only one operand needs no Split.
    """
    splits: dict[str, Node] = {}
    names: list[str] = []
    for item in heads:
        if item.parts == 1:
            names.append(item.source)
            continue
        split = splits.get(item.source)
        if split is None:
            split = splits[item.source] = split_last(
                editor, item.source, [item.heads * item.size] * item.parts
            )
        names.append(split.outputs[item.part])
    return names, list(splits.values())


def split_last(editor: Editor, name: str, sizes: list[int]) -> Node:
    """Return a node Split, which cuts a value's last axis into new values of the given sizes."""
    parts = [editor.name(f"{name}_part") for _ in sizes]
    lengths = editor.add_constant(f"{name}_parts", np.array(sizes, np.int64))
    return Node("Split", [name, lengths], parts, {"axis": -1})


# ---- projections ------------------------------------------------------------------------------


def _join_projections(editor: Editor, node: Node) -> Replacement:
    """Join the three linear layers that compute q, k and v into one layer with a Split after it."""
    layers = [editor.only(name, LINEAR) for name in node.inputs[:3]]
    layers = [layer for layer in layers if layer is not None]
    if len({id(layer) for layer in layers}) != 3:
        return None
    x = layers[0].inputs[0]
    weights = [editor.constant(layer.inputs[1]) for layer in layers]
    biases = [editor.constant(layer.inputs[2]) for layer in layers if len(layer.inputs) > 2]
    arrays = [array for array in weights if array is not None]
    shifts = [array for array in biases if array is not None]
    if len(arrays) != 3 or len(shifts) not in (0, 3):
        return None
    if any(layer.inputs[0] != x for layer in layers):
        return None
    sizes = [array.shape[1] for array in arrays]
    joined = editor.name(f"{x}_projected")
    weight = editor.add_constant(f"{joined}_weight", np.concatenate(arrays, axis=1))
    bias = editor.add_constant(f"{joined}_bias", np.concatenate(shifts)) if shifts else None
    split = split_last(editor, joined, sizes)
    inputs = [*split.outputs, *node.inputs[3:]]
    return [
        linear(x, weight, bias, joined, layers[0].name),
        split,
        replace(node, inputs=inputs, outputs=list(node.outputs)),
    ]


REWRITES = (
    rewrite(
        "attention",
        "softmax(q k^T) v of several heads becomes one operator without Transposes",
        _attention,
        "Reshape",
    ),
    rewrite(
        "projections",
        "the linear layers of the queries, keys and values of an attention become one",
        _join_projections,
        ATTENTION,
    ),
)
