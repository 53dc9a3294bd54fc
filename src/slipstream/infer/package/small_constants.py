"""Store constants in a package in the precision with which the recipe's engine computes.

The stored constants are int8, bfloat16 or float16 in place of float32. Standard ONNX operators turn
the constants into float32 again: DequantizeLinear with a scale per channel for int8, and Cast for
bfloat16 or float16. So the stored graph is a valid ONNX model. The engine rounds the restored
constants to the same numbers again, so the engine computes the same results.
"""

# The stubs of onnx and NumPy leave some of their types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Array, Graph, Node
from slipstream.infer.graph.onnx_file import BFLOAT16
from slipstream.infer.native.formats import Weights

MARK = "slipstream:small:"  # prefix of the names of nodes that restore constants
LEAST_OPSET = 13  # the first opset with scales per channel and with bfloat16


def compress_constants(graph: Graph, small: Mapping[str, Small]) -> Graph:
    """Return a copy of a graph that stores the constants in `small` with fewer bits.

    A new node restores each of these constants to float32. A constant keeps its type if several
    nodes read it. All constants keep their types if the opset is older than 13.
    """
    if graph.opsets.get("", 1) < LEAST_OPSET:
        return graph
    uses, nodes = graph.uses(), list[Node]()
    constants = dict(graph.constants)
    for name, how in small.items():
        if name not in constants or len(uses.get(name, [])) != 1 or name in graph.outputs:
            continue
        array = constants.pop(name)
        if how.dtype != "int8":
            dtype = BFLOAT16 if how.dtype == "bfloat16" else np.float16
            parts = {graph.fresh(f"{name}:{how.dtype}"): array.astype(dtype)}
            node = Node("Cast", list(parts), [name], {"to": int(TensorProto.FLOAT)})
        else:
            weights = Weights.quantise(np.moveaxis(array, how.axis, 0), of_bytes=how.of_bytes)
            numbers = np.ascontiguousarray(np.moveaxis(weights.numbers, 0, how.axis))
            names = graph.fresh(f"{name}:int8"), graph.fresh(f"{name}:scale")
            parts = dict(zip(names, (numbers, weights.scale), strict=True))
            node = Node("DequantizeLinear", list(parts), [name], {"axis": how.axis})
        constants.update(parts)
        nodes.append(replace(node, name=MARK + name))
    return replace(graph, nodes=[*nodes, *graph.nodes], constants=constants)


def restore_constants(graph: Graph) -> Graph:
    """Undo `compress_constants`: return the graph with float32 constants, which stay rounded."""
    constants, nodes, parts = dict(graph.constants), list[Node](), set[str]()
    for node in graph.nodes:
        restored = _restored(node, [constants.get(name) for name in node.inputs])
        if restored is None:
            nodes.append(node)
            continue
        parts.update(node.inputs)
        constants[node.output] = restored
    used = {name for node in nodes for name in node.reads()} | set(graph.outputs)
    remaining = {name: array for name, array in constants.items() if name not in parts - used}
    return replace(graph, nodes=nodes, constants=remaining)


def _restored(node: Node, parts: Sequence[Array | None]) -> Array | None:
    """Return the constant that a node restores; None if the node restores no constant."""
    if not node.name.startswith(MARK) or len(node.outputs) != 1:
        return None
    match node.op, parts:
        case "Cast", [np.ndarray() as halves] if halves.dtype in (BFLOAT16, np.float16):
            return halves.astype(np.float32)
        case "DequantizeLinear", [np.ndarray() as numbers, np.ndarray() as scale]:
            axis = node.get("axis")
            if numbers.dtype != np.int8 or scale.dtype != np.float32 or scale.ndim != 1:
                return None
            if not isinstance(axis, int) or not 0 <= axis < numbers.ndim:
                return None
            if len(scale) != numbers.shape[axis]:
                return None
            shape = [-1 if at == axis else 1 for at in range(numbers.ndim)]
            return np.multiply(numbers, scale.reshape(shape), dtype=np.float32)
        case _:
            return None
