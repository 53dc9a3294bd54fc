"""Expansion of operators of the domain `slipstream` into operators of ONNX, which all engines know.

The operators of ONNX form patterns that ONNX Runtime and OpenVINO recognise and fuse.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from slipstream.infer.graph.graph import SLIPSTREAM, Graph, Node
from slipstream.infer.graph.onnx_file import infer_shapes
from slipstream.infer.rewrites.activations import CUBIC
from slipstream.infer.rewrites.editor import Editor

FLOAT32 = 1  # ONNX's number for the type


def expand(graph: Graph, keep: Collection[str] = ()) -> Graph:
    """Return a copy of the graph; expand operators of `slipstream`, except those in `keep`."""
    result = graph.copy()
    editor = Editor(result)
    for node in list(result.nodes):
        if node.domain == SLIPSTREAM and node.op not in keep:
            editor.put(EXPANSIONS[node.op](_Writer(editor, node), node), instead_of=node)
    editor.close()
    return infer_shapes(result)


class _Writer:
    """A writer of the nodes and constants that replace an expanded node.

    Args:
        editor: Editor of the graph.
        node: Node to expand. The names of new values begin with the name of the node's output.
    """

    def __init__(self, editor: Editor, node: Node) -> None:
        self.editor = editor
        self.stem = node.output
        self.nodes: list[Node] = []

    def __call__(
        self, op: str, *inputs: str, to: str = "", **attributes: int | float | list[int]
    ) -> str:
        """Add a node, and return the name of its output."""
        output = to or self.editor.name(f"{self.stem}/{op}")
        self.nodes.append(Node(op, list(inputs), [output], {**attributes}))
        return output

    def number(self, value: float) -> str:
        """Add a constant float32 scalar and return its name."""
        return self.editor.add_constant(f"{self.stem}/number", np.array(value, np.float32))

    def vector(self, values: Sequence[int]) -> str:
        """Add a constant int64 vector and return its name."""
        return self.editor.add_constant(f"{self.stem}/vector", np.array(values, np.int64))


def _linear(write: _Writer, node: Node) -> list[Node]:
    x, weight, *bias = node.inputs
    if not bias:
        write("MatMul", x, weight, to=node.output)
    elif write.editor.rank(x) == 2:
        write("Gemm", x, weight, *bias, to=node.output)
    else:
        write("Add", write("MatMul", x, weight), *bias, to=node.output)
    return write.nodes


def _silu(write: _Writer, node: Node) -> list[Node]:
    (x,) = node.inputs
    write("Mul", x, write("Sigmoid", x), to=node.output)
    return write.nodes


def _gelu(write: _Writer, node: Node) -> list[Node]:
    (x,) = node.inputs
    if node.get("approximate", "none") == "none":
        bent = write("Erf", write("Div", x, write.number(math.sqrt(2))))
    else:
        cubic = write("Mul", write("Pow", x, write.number(3)), write.number(CUBIC))
        scale = write.number(math.sqrt(2 / math.pi))
        bent = write("Tanh", write("Mul", write("Add", x, cubic), scale))
    gated = write("Mul", x, write("Add", bent, write.number(1)))
    write("Mul", gated, write.number(0.5), to=node.output)
    return write.nodes


def _rms_norm(write: _Writer, node: Node) -> list[Node]:
    x, scale = node.inputs
    over = list(range(node.get("axis"), 0))
    square = write("Mul", x, x)
    if write.editor.opset < 18:
        mean = write("ReduceMean", square, axes=over)
    else:
        mean = write("ReduceMean", square, write.vector(over))
    root = write("Sqrt", write("Add", mean, write.number(node.get("epsilon"))))
    write("Mul", write("Div", x, root), scale, to=node.output)
    return write.nodes


def _squeeze_excite(write: _Writer, node: Node) -> list[Node]:
    x, *names = node.inputs
    arrays = [write.editor.graph.constants[name] for name in names]
    first, second = (
        write.editor.add_constant(name, np.ascontiguousarray(array.T)[:, :, None, None])
        for name, array in zip(names[::2], arrays[::2], strict=True)
    )
    squeezed = write("Conv", write("GlobalAveragePool", x), first, names[1], kernel_shape=[1, 1])
    activation = node.get("activation")
    if activation == "Silu":
        bent = write("Mul", squeezed, write("Sigmoid", squeezed))
    else:
        bent = write(activation, squeezed)
    excited = write("Conv", bent, second, names[3], kernel_shape=[1, 1])
    if node.get("gate") == "HardSigmoid":
        gate = write("HardSigmoid", excited, alpha=1 / 6, beta=0.5)
    else:
        gate = write("Sigmoid", excited)
    write("Mul", x, gate, to=node.output)
    return write.nodes


def _attention(write: _Writer, node: Node) -> list[Node]:
    heads, mask = node.get("heads"), node.inputs[3:]
    split = write.vector([0, 0, heads, -1])
    query, key, value = (write("Reshape", name, split) for name in node.inputs[:3])
    query = write("Transpose", query, perm=[0, 2, 1, 3])
    key = write("Transpose", key, perm=[0, 2, 3, 1])
    scores = write("Mul", write("MatMul", query, key), write.number(node.get("scale")))
    if mask:
        scores = write("Add", scores, *mask)
    shares = write("Softmax", scores, axis=-1)
    mixed = write("MatMul", shares, write("Transpose", value, perm=[0, 2, 1, 3]))
    moved = write("Transpose", mixed, perm=[0, 2, 1, 3])
    write("Reshape", moved, write.vector([0, 0, -1]), to=node.output)
    return write.nodes


def _pixels(write: _Writer, node: Node) -> list[Node]:
    (x,) = node.inputs
    moved = write("Transpose", x, perm=[0, 3, 1, 2])
    numbers = write.editor.name(f"{write.stem}/Cast")
    write.nodes.append(Node("Cast", [moved], [numbers], {"to": FLOAT32}))
    scale, shift = (
        write.editor.add_constant(
            f"{write.stem}/{name}", np.array(node.get(name), np.float32)[:, None, None]
        )
        for name in ("scale", "shift")
    )
    write("Add", write("Mul", numbers, scale), shift, to=node.output)
    return write.nodes


def _inverse_root(write: _Writer, node: Node) -> list[Node]:
    (x,) = node.inputs
    write("Reciprocal", write("Sqrt", x), to=node.output)
    return write.nodes


EXPANSIONS: dict[str, Callable[[_Writer, Node], list[Node]]] = {
    "Attention": _attention,
    "Gelu": _gelu,
    "InverseRoot": _inverse_root,
    "Linear": _linear,
    "Pixels": _pixels,
    "RmsNorm": _rms_norm,
    "Silu": _silu,
    "SqueezeExcite": _squeeze_excite,
}
