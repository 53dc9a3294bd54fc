"""Removal of nodes without effect: dead nodes, duplicates, identities, chains of layout changes."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from slipstream.infer.graph.graph import Array, Graph, Node, Subgraph
from slipstream.infer.rewrites.editor import Editor, Replacement, Rewrite, rewrite
from slipstream.infer.rewrites.patterns import RESHAPES, axes, operands, target

# ---- dead nodes, duplicates -------------------------------------------------------------------

# Operators whose outputs may differ for equal inputs, or depend on a subgraph.
MAY_DIFFER = (
    *("Bernoulli", "Dropout", "If", "Loop", "Multinomial", "RandomNormal", "RandomNormalLike"),
    *("RandomUniform", "RandomUniformLike", "Scan"),
)
COMMUTATIVE = ("Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor")
# Approximate number of elements of two constants that are compared first. All elements are compared
# if these are equal. Chosen by hand, not measured.
SAMPLES = 64


def _drop_dead(graph: Graph) -> int:
    needed = set(graph.outputs)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(node.reads())
    count = len(graph.nodes) - len(nodes)
    graph.nodes = nodes[::-1]
    graph.constants = {name: array for name, array in graph.constants.items() if name in needed}
    return count


def _merge_duplicates(graph: Graph) -> int:
    _merge_constants(graph)
    editor = Editor(graph)
    seen: dict[Hashable, Node] = {}
    count = 0
    for node in list(graph.nodes):
        key = _key(node)
        if key is not None and seen.setdefault(key, node) is not node:
            count += editor.merge(node, seen[key])
    editor.close()
    return count


def _key(node: Node) -> Hashable:
    """Return a key that is the same for two nodes with equal outputs.

    The result is None for operators whose outputs may differ for equal inputs (`MAY_DIFFER`).
    """
    if node.op in MAY_DIFFER:
        return None
    inputs = sorted(node.inputs) if node.op in COMMUTATIVE else node.inputs
    attributes = sorted((name, _frozen(value)) for name, value in node.attributes.items())
    present = tuple(bool(output) for output in node.outputs)
    return (node.domain, node.op, tuple(inputs), tuple(attributes), present)


def _frozen(value: object) -> str:
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape, value.tobytes()))
    return repr(value)


def _merge_constants(graph: Graph) -> None:
    """Merge equal constants. A merge does not count as a match, because no node is removed."""
    fixed = set(graph.outputs)
    for node in graph.nodes:
        for attribute in node.attributes.values():
            if isinstance(attribute, Subgraph):
                fixed |= attribute.reads
    groups: dict[Hashable, list[str]] = {}
    renamed: dict[str, str] = {}
    for name, array in graph.constants.items():
        alike = groups.setdefault((array.dtype, array.shape, _sample(array)), [])
        twin = next((one for one in alike if _is_equal(graph.constants[one], array)), None)
        if twin is None or name in fixed:
            alike.append(name)
        else:
            renamed[name] = twin
    if renamed:
        graph.rename(renamed)
    for name in renamed:
        del graph.constants[name]


def _sample(array: Array) -> bytes:
    step = max(1, array.size // SAMPLES)
    return array.flat[::step].tobytes()


def _is_equal(one: Array, other: Array) -> bool:
    return one is other or one.tobytes() == other.tobytes()


# ---- identities -------------------------------------------------------------------------------

END = np.iinfo(np.int32).max  # from this number on, the end of a Slice means the end of the axis


def _identity(editor: Editor, node: Node) -> Replacement:
    """Return the input of a node that passes its input on unchanged."""
    return node.inputs[0]


def _dropout(editor: Editor, node: Node) -> Replacement:
    training = editor.constant(node.inputs[2]) if len(node.inputs) > 2 else np.array(False)
    is_inference = training is not None and not training.any()
    is_alone = len(node.outputs) == 1 or not editor.is_read(node.outputs[1])
    return node.inputs[0] if is_inference and is_alone else None


def _cast(editor: Editor, node: Node) -> Replacement:
    old, new = editor.value(node.inputs[0]).dtype, editor.value(node.output).dtype
    return node.inputs[0] if old is not None and old == new else None


def _single(editor: Editor, node: Node) -> Replacement:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _keeps_shape(editor: Editor, node: Node) -> Replacement:
    old, new = editor.shape(node.inputs[0]), editor.shape(node.output)
    return node.inputs[0] if old is not None and old == new else None


def _reshape(editor: Editor, node: Node) -> Replacement:
    shape, target_shape = editor.value(node.inputs[0]).shape, editor.constant(node.inputs[1])
    if shape is None or target_shape is None or len(shape) != target_shape.size:
        return _keeps_shape(editor, node)
    if node.get("allowzero", 0):
        return _keeps_shape(editor, node)
    pairs = zip(shape, target_shape.tolist(), strict=True)
    changed = [new for old, new in pairs if new not in (0, old)]
    return node.inputs[0] if changed in ([], [-1]) else None


def _slice(editor: Editor, node: Node) -> Replacement:
    starts, ends = (editor.constant(name) for name in node.inputs[1:3])
    steps = editor.constant(node.inputs[4]) if len(node.inputs) > 4 else np.array(1)
    if starts is None or ends is None or steps is None or (steps != 1).any():
        return None
    is_whole = not starts.any() and (ends >= END).all()
    return node.inputs[0] if is_whole else _keeps_shape(editor, node)


def _neutral(editor: Editor, node: Node) -> Replacement:
    """Remove an operation without effect, such as adding 0 or multiplying by 1."""
    matched = operands(editor, node)
    neutral = 0 if node.op in ("Add", "Sub") else 1
    if matched is None or (matched.constant != neutral).any():
        return None
    if matched.constant_first and node.op in ("Sub", "Div", "Pow"):
        return None
    rank = editor.rank(matched.value)
    if matched.constant.size == 1 and rank is not None and matched.constant.ndim <= rank:
        return matched.value
    old, new = editor.shape(matched.value), editor.shape(node.output)
    return matched.value if old is not None and old == new else None


def _pad(editor: Editor, node: Node) -> Replacement:
    pads = editor.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return node.inputs[0] if pads is not None and not pads.any() else None


def _transpose(editor: Editor, node: Node) -> Replacement:
    order = node.get("perm")
    return node.inputs[0] if order is not None and order == sorted(order) else None


IDENTITIES = {
    **dict.fromkeys(("Add", "Div", "Mul", "Pow", "Sub"), _neutral),
    **dict.fromkeys(("Concat", "Max", "Mean", "Min", "Sum"), _single),
    **dict.fromkeys(("Expand", "Flatten", "Squeeze", "Unsqueeze"), _keeps_shape),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "Dropout": _dropout,
    "Identity": _identity,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Transpose": _transpose,
}


def _remove_identity(editor: Editor, node: Node) -> Replacement:
    rule = IDENTITIES.get(node.op)
    return None if rule is None or node.domain else rule(editor, node)


# ---- chains of layout changes -----------------------------------------------------------------


def _merge_transposes(editor: Editor, node: Node) -> Replacement:
    inner = editor.producer(node.inputs[0], "Transpose")
    order = node.get("perm")
    if inner is None or order is None or inner.get("perm") is None:
        return None
    merged = [inner.get("perm")[axis] for axis in order]
    if merged == sorted(merged):
        return inner.inputs[0]
    if not editor.is_private(inner.output):
        return None
    return [Node("Transpose", [inner.inputs[0]], node.outputs, {"perm": merged}, name=node.name)]


def _merge_reshapes(editor: Editor, node: Node) -> Replacement:
    inner = editor.producer(node.inputs[0], *RESHAPES)
    if inner is None:
        return None
    source = inner.inputs[0]
    shape = target(editor.value(source), editor.value(node.output))
    if shape is None:
        return None
    name = editor.add_constant(f"{node.output}_shape", shape)
    return [Node("Reshape", [source, name], node.outputs, name=node.name)]


def _transpose_of_batches(editor: Editor, node: Node) -> Replacement:
    """Replace Reshape(Transpose(Reshape(x))) by Transpose(Reshape(x)) if it swaps two axes.

    The two axes are the last axes of x. In the replaced chain, the first Reshape only merges the
    leading axes into one axis; the second Reshape only splits that axis again.
    """
    order = editor.only(node.inputs[0], "Transpose")
    inner = None if order is None else editor.only(order.inputs[0], "Reshape")
    if order is None or inner is None or order.get("perm") != [0, 2, 1]:
        return None
    swapped, shape = editor.shape(order.output), editor.shape(node.output)
    if swapped is None or shape is None or len(shape) < 3 or shape[-2:] != swapped[-2:]:
        return None
    sizes = np.array([*shape[:-2], shape[-1], shape[-2]], np.int64)
    if 0 in sizes:
        return None
    batches = editor.name(f"{node.output}_batches")
    shape_name = editor.add_constant(f"{batches}_shape", sizes)
    last = len(shape) - 1
    perm = [*range(last - 1), last, last - 1]
    return [
        Node("Reshape", [inner.inputs[0], shape_name], [batches]),
        Node("Transpose", [batches], node.outputs, {"perm": perm}, name=node.name),
    ]


def _transpose_of_ones(editor: Editor, node: Node) -> Replacement:
    """Replace a Transpose by a Reshape if the Transpose moves only axes of length 1."""
    shape, order = editor.shape(node.inputs[0]), node.get("perm")
    if shape is None or order is None:
        return None
    moved = [axis for axis in order if shape[axis] != 1]
    if moved != sorted(moved):
        return None
    sizes = np.array([shape[axis] for axis in order], np.int64)
    name = editor.add_constant(f"{node.output}_shape", sizes)
    return [Node("Reshape", [node.inputs[0], name], node.outputs, name=node.name)]


def _mean_of_pixels(editor: Editor, node: Node) -> Replacement:
    """Replace a ReduceMean over all pixels of an image by pooling, because engines pool faster."""
    shape, dtype = editor.value(node.inputs[0]).shape, editor.value(node.inputs[0]).dtype
    is_image = shape is not None and len(shape) == 4 and dtype == np.float32
    if not is_image or node.get("keepdims", 1) != 1 or axes(editor, node) != [2, 3]:
        return None
    return [Node("GlobalAveragePool", [node.inputs[0]], node.outputs, name=node.name)]


REWRITES = (
    Rewrite("dead-nodes", "nodes whose outputs no other node reads are removed", _drop_dead),
    Rewrite(
        "duplicates",
        "equal constants, and nodes that compute the same, become one",
        _merge_duplicates,
    ),
    rewrite(
        "identities",
        "nodes that pass their input on unchanged are removed",
        _remove_identity,
        *IDENTITIES,
    ),
    rewrite("transposes", "two Transposes become one, or none", _merge_transposes, "Transpose"),
    rewrite(
        "transpose-ones",
        "a Transpose that moves only axes of length 1 becomes a Reshape",
        _transpose_of_ones,
        "Transpose",
    ),
    rewrite(
        "transpose-batches",
        "a Transpose of the last two axes loses the Reshapes around it",
        _transpose_of_batches,
        "Reshape",
    ),
    rewrite(
        "reshapes",
        "a chain of Reshape, Squeeze, Unsqueeze and Flatten becomes one",
        _merge_reshapes,
        *RESHAPES,
    ),
    rewrite(
        "global-pools",
        "ReduceMean over height and width becomes GlobalAveragePool",
        _mean_of_pixels,
        "ReduceMean",
    ),
)
