"""Folding of nodes that depend only on constants and shapes, not on inputs of the graph."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
from onnx.reference import ReferenceEvaluator

from slipstream.infer.graph.graph import Array, Graph, Node, Value
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite

# Largest size in bytes of a folded output, unless its inputs are larger. Chosen by hand, not
# measured.
LARGEST_BYTES = 64 << 20
# If inputs have at most this many elements, only the operators that `_size` names can compute a
# large output. Chosen by hand, not measured.
SMALL = 4096

FOLDED = (
    *("Abs", "Acos", "Add", "And", "ArgMax", "ArgMin", "Asin", "Atan", "Cast"),
    *("Ceil", "Clip", "Compress", "Concat", "ConstantOfShape", "Cos", "CumSum", "Div", "Elu"),
    *("Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements"),
    *("GatherND", "Gemm", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity"),
    *("IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Mean"),
    *("Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "PRelu"),
    *("Range", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"),
    *("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
    *("Relu", "Reshape", "Round", "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign"),
    *("Sin", "Size", "Slice", "Softmax", "Softplus", "Split", "Sqrt", "Squeeze", "Sub", "Sum"),
    *("Tan", "Tanh", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor"),
)


def _fold(editor: Editor, node: Node) -> Replacement:
    if node.domain or node.op not in FOLDED:
        return None
    arrays = {name: editor.constant(name) for name in node.inputs if name}
    if not arrays or any(array is None for array in arrays.values()):
        return None
    inputs = cast("dict[str, Array]", arrays)
    is_answer = any(editor.is_output(output) for output in node.outputs)
    if (node.op == "Identity" and is_answer) or _grows_too_large(editor, node, inputs):
        return None
    results = _run(editor, node, inputs)
    nodes: list[Node] = []
    for output, array in zip(node.outputs, results, strict=True):
        if editor.is_output(output):
            name = editor.add_constant(f"{output}_constant", array)
            nodes.append(Node("Identity", [name], [output]))
        elif output:
            editor.graph.constants[output] = array
    return nodes


def _cast_like(editor: Editor, node: Node) -> Replacement:
    """Replace a CastLike of a constant by a constant of the type of the second input."""
    array, dtype = editor.constant(node.inputs[0]), editor.value(node.inputs[1]).dtype
    if array is None or dtype is None or editor.is_output(node.output):
        return None
    editor.graph.constants[node.output] = array.astype(dtype)
    return []


def _grows_too_large(editor: Editor, node: Node, arrays: dict[str, Array]) -> bool:
    sizes = {output: _size(editor, node, output) for output in node.outputs if output}
    limit = max(LARGEST_BYTES, sum(array.nbytes for array in arrays.values()))
    return any(size is None or size > limit for size in sizes.values())


def _size(editor: Editor, node: Node, output: str) -> int | None:
    """Return an upper bound of an output's size in bytes; None if no bound is known.

    The result is 0 if the shape of the output is unknown and the inputs of the node are small.
    """
    first = editor.constant(node.inputs[0])
    if first is None:
        return None
    last = editor.constant(node.inputs[-1])
    match node.op:
        case "ConstantOfShape":
            return 8 * math.prod(first.tolist())
        case "Expand" if last is not None:
            return first.itemsize * math.prod(np.broadcast_shapes(first.shape, tuple(last)))
        case "Tile" if last is not None:
            return first.nbytes * math.prod(last.tolist())
        case "Range":
            limit, step = (editor.constant(name) for name in node.inputs[1:])
            if limit is None or step is None:
                return None
            first, limit, step = (float(array.reshape(())) for array in (first, limit, step))
            return 8 * max(0, math.ceil((limit - first) / step))
        case _:
            value = editor.value(output)
            if value.fixed is None or value.dtype is None:
                sizes = (editor.graph.constants[name].size for name in node.inputs if name)
                return 0 if sum(sizes) <= SMALL else None
            return value.dtype.itemsize * math.prod(value.fixed)


def _run(editor: Editor, node: Node, arrays: dict[str, Array]) -> list[Array]:
    graph = Graph(
        inputs={name: Value(array.dtype, array.shape) for name, array in arrays.items()},
        outputs=[output for output in node.outputs if output],
        nodes=[node],
        constants={},
        values={output: Value(editor.value(output).dtype, None) for output in node.outputs},
        opsets=editor.graph.opsets,
    )
    with np.errstate(all="ignore"):
        results = cast("Sequence[Array]", ReferenceEvaluator(to_model(graph)).run(None, arrays))
    by_name = dict(zip(graph.outputs, results, strict=True))
    return [
        np.asarray(by_name.get(output), dtype=editor.value(output).dtype) for output in node.outputs
    ]


# ---- shapes -----------------------------------------------------------------------------------

Entry: TypeAlias = "int | str | tuple[str, int]"
"""An element of an integer vector.

It is a number, the name of a dimension, or a pair of a value's name and an axis. The pair stands
for the length of this axis.
"""

SHAPE_OPS = (
    *("Cast", "Concat", "Gather", "Identity", "Shape", "Size", "Slice", "Squeeze", "Unsqueeze"),
)


def _fold_shape(editor: Editor, node: Node) -> Replacement:
    shape = editor.shape(node.output)
    if shape is None or len(shape) > 1 or editor.is_output(node.output):
        return None
    entries = _entries(editor, node.output)
    if entries is None or not all(isinstance(entry, int) for entry in entries):
        return None
    dtype = editor.value(node.output).dtype
    editor.graph.constants[node.output] = np.array(entries, dtype).reshape(shape)
    return []


def _fixed_target(editor: Editor, node: Node) -> Replacement:
    """Replace the computed target shape of a Reshape by a constant.

    Each entry of the constant is a fixed size, 0 (copied from the input), or -1 (inferred). Only
    one entry may be -1.
    """
    data, target_shape = node.inputs
    entries = _entries(editor, target_shape)
    if entries is None or (node.get("allowzero", 0) and 0 in entries):
        return None
    dimensions = _dimensions(editor, data)
    sizes = [_target_size(entry, at, dimensions) for at, entry in enumerate(entries)]
    sizes = _copied(sizes, dimensions)
    is_done = editor.constant(target_shape) is not None and sizes == entries
    if sizes.count(-1) > 1 or is_done:
        return None
    shape = editor.add_constant(f"{node.output}_shape", np.array(sizes, np.int64))
    return [Node("Reshape", [data, shape], [node.output], name=node.name)]


def _copied(sizes: list[int], dimensions: Sequence[Entry] | None) -> list[int]:
    """Return a Reshape's target shape, with -1 (infer) changed to 0 (copy) if both are equal."""
    at = sizes.index(-1) if sizes.count(-1) == 1 else len(sizes)
    if dimensions is None or at >= len(dimensions) or isinstance(dimensions[at], int):
        return sizes
    first = [size or dimensions[axis] for axis, size in enumerate(sizes[: len(dimensions)])]
    new = [size for axis, size in enumerate([*first, *sizes[len(dimensions) :]]) if axis != at]
    old = [size for axis, size in enumerate(dimensions) if axis != at]
    if not all(isinstance(size, int) and size > 0 for size in (*new, *old)):
        return sizes
    is_equal = math.prod(cast("list[int]", new)) == math.prod(cast("list[int]", old))
    return [*sizes[:at], 0, *sizes[at + 1 :]] if is_equal else sizes


def _target_size(entry: Entry, at: int, dimensions: Sequence[Entry] | None) -> int:
    if isinstance(entry, int):
        return entry
    is_same = dimensions is not None and at < len(dimensions) and dimensions[at] == entry
    return 0 if is_same else -1


def _entries(editor: Editor, name: str) -> Sequence[Entry] | None:
    """Return an integer vector's elements; None if constants and shapes do not determine them."""
    array = editor.constant(name)
    if array is not None:
        is_vector = array.ndim <= 1 and array.dtype.kind == "i"
        return array.reshape(-1).tolist() if is_vector else None
    node = editor.producer(name)
    if node is None or node.domain:
        return None
    match node.op:
        case "Shape":
            sizes = _dimensions(editor, node.inputs[0])
            return None if sizes is None else sizes[slice(node.get("start", 0), node.get("end"))]
        case "Size":
            shape = editor.shape(node.inputs[0])
            return None if shape is None else [math.prod(shape)]
        case "Identity" | "Squeeze" | "Unsqueeze" | "Cast":
            dtype, rank = editor.value(name).dtype, editor.rank(name)
            is_vector = dtype is not None and dtype.kind == "i" and rank is not None and rank <= 1
            return _entries(editor, node.inputs[0]) if is_vector else None
        case "Concat":
            parts = [_entries(editor, item) for item in node.inputs]
            return None if None in parts else [entry for part in parts for entry in part or ()]
        case "Gather" | "Slice":
            return _selected(editor, node)
        case _:
            return None


def _selected(editor: Editor, node: Node) -> Sequence[Entry] | None:
    entries = _entries(editor, node.inputs[0])
    arrays = [editor.constant(name) for name in node.inputs[1:] if name]
    if entries is None or any(array is None or array.ndim > 1 for array in arrays):
        return None
    numbers = [cast("Array", array).reshape(-1).tolist() for array in arrays]
    if node.op == "Gather":
        return [entries[at] for at in numbers[0]]
    step = numbers[3][0] if len(numbers) > 3 else 1
    if step < 1:
        return None
    return entries[slice(numbers[0][0], numbers[1][0], step)]


def _dimensions(editor: Editor, name: str) -> Sequence[Entry] | None:
    shape = editor.value(name).shape
    if shape is None:
        return None
    # Shape inference names unknown sizes "unk__N". Each call counts N from 0 again, so equal names
    # do not mean equal sizes.
    return [
        (name, axis) if size is None or str(size).startswith("unk__") else size
        for axis, size in enumerate(shape)
    ]


REWRITES = (
    rewrite("constants", "nodes that read only constants become constants", _fold),
    rewrite(
        "casts",
        "a cast of a constant to the type of another value becomes a constant",
        _cast_like,
        "CastLike",
    ),
    rewrite("shapes", "arithmetic with known sizes becomes a constant", _fold_shape, *SHAPE_OPS),
    rewrite(
        "reshape-targets",
        "a Reshape that copies sizes loses the Shape, Slice and Concat before it",
        _fixed_target,
        "Reshape",
    ),
)
