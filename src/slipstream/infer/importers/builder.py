"""A graph made node by node, every shape known at once, so that importers can ask for them."""

# The stubs of onnx leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array, Attribute, Graph, Node, Value

OPSET = 17
LARGEST_VALUE = (
    2**28
)  # elements: more than any network has, and memory that a damaged file cannot ask
LONGEST_AXIS = 2**26
LARGEST_READ = 1024  # elements of a constant that shapes may follow from
EPSILON = 1e-5


class Builder:
    """Makes a graph whose shapes are all fixed.

    Set `where` to what is being imported, for the names of values and for messages, "conv1
    (Convolution)"; the part before the first space names values.
    """

    def __init__(self, name: str) -> None:
        self.where = name
        self._graph = Graph({}, [], [], {}, opsets={"": OPSET}, name=name)
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()

    def input(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> str:
        """Add an input of the graph under its own name."""
        self._check_size(tuple(shape))
        self._taken.add(name)
        self._graph.inputs[name] = Value(np.dtype(dtype), tuple(shape))
        return name

    def constant(self, stem: str, array: npt.ArrayLike) -> str:
        """Add a constant; 64-bit floats become 32-bit floats."""
        found = np.asarray(array)
        if found.dtype == np.float64:
            found = found.astype(np.float32)
        name = self._fresh(f"{self._stem}.{stem}")
        self._graph.constants[name] = np.ascontiguousarray(found).reshape(found.shape)
        return name

    def add(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node of one output and return its name. Omitted inputs are ""."""
        return self.add_several(1, op, *inputs, **attributes)[0]

    def add_several(self, count: int, op: str, *inputs: str, **attributes: Attribute) -> list[str]:
        """Add a node of `count` outputs and return their names."""
        outputs = [self._fresh(self._stem) for _ in range(count)]
        node = Node(op, list(inputs), outputs, dict(attributes), name=outputs[0])
        for name, value in zip(outputs, self._inferred(node), strict=True):
            self._graph.values[name] = value
        self._graph.nodes.append(node)
        return outputs

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value of this graph."""
        shape = self._graph.shape(name)
        assert shape is not None, name
        return shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the dtype of a value of this graph."""
        dtype = self._graph.value(name).dtype
        assert dtype is not None, name
        return dtype

    def constant_value(self, name: str) -> Array | None:
        """Return the elements of a constant, or None for a computed value."""
        return self._graph.constants.get(name)

    def finish(self, outputs: Mapping[str, str]) -> Graph:
        """The graph, with outputs of these names; each says which value it is."""
        names: dict[str, str] = {}
        for wanted, value in outputs.items():
            self.where = wanted
            computed = value in self._graph.values and value not in names
            names[value if computed else self.add("Identity", value)] = wanted
        for name in [*self._graph.values, *self._graph.constants]:
            if name not in names and name in outputs:
                names[name] = self._fresh(name)
        if not names:
            raise UsageError(f"{self._graph.name}: it has no output")
        return self._renamed(names, list(outputs))

    # ---- inside ----------------------------------------------------------------------------

    @property
    def _stem(self) -> str:
        return self.where.partition(" ")[0] or "value"

    def _fresh(self, stem: str) -> str:
        name = stem
        while name in self._taken:
            self._counts[stem] += 1
            name = f"{stem}_{self._counts[stem]}"
        self._taken.add(name)
        return name

    def _inferred(self, node: Node) -> list[Value]:
        """Run ONNX's own shape inference on one node."""
        attributes: dict[str, Any] = {**node.attributes}
        proto = helper.make_node(node.op, node.inputs, node.outputs, **attributes)
        used = {name for name in node.inputs if name}
        types = {name: _type(self.dtype(name), self.shape(name)) for name in used}
        constants = self._graph.constants
        data = {
            name: numpy_helper.from_array(constants[name], name)
            for name in used
            if name in constants and constants[name].size <= LARGEST_READ
        }
        schema = onnx.defs.get_schema(node.op, OPSET)
        opsets = [helper.make_opsetid("", OPSET)]
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=opsets
            )
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            raise self._misfit(node, str(error)) from error
        values = [_value(found[name]) for name in node.outputs if name in found]
        if len(values) != len(node.outputs) or any(value.fixed is None for value in values):
            raise self._misfit(node, "the shape of what it gives does not follow")
        for value in values:
            self._check_size(value.fixed or ())
        return values

    def _misfit(self, node: Node, why: str) -> UsageError:
        shapes = ", ".join(str(self.shape(name)) for name in node.inputs if name)
        return UsageError(f"{self.where}: {node.op} of the shapes {shapes}: {why}")

    def _check_size(self, shape: tuple[int, ...]) -> None:
        size = 1
        for length in shape:
            size *= length
        if size > LARGEST_VALUE or not all(1 <= length <= LONGEST_AXIS for length in shape):
            raise UsageError(
                f"{self.where}: a value of the shape {shape}; allowed: dimensions of 1 to"
                f" {LONGEST_AXIS}, {LARGEST_VALUE} elements in all"
            )

    def _renamed(self, names: Mapping[str, str], outputs: list[str]) -> Graph:
        graph = self._graph
        nodes = [
            Node(
                node.op,
                [names.get(name, name) for name in node.inputs],
                [names.get(name, name) for name in node.outputs],
                node.attributes,
                name=node.name,
            )
            for node in graph.nodes
        ]
        constants = {names.get(name, name): array for name, array in graph.constants.items()}
        values = {names.get(name, name): value for name, value in graph.values.items()}
        return Graph(graph.inputs, outputs, nodes, constants, values, graph.opsets, graph.name)


def refuse_all(what: str, found: Sequence[str], known: Sequence[str]) -> None:
    """UsageError that names everything `found` that is not `known`, and how often it is there."""
    strange = Counter(name for name in found if name not in known)
    if not strange:
        return
    text = ", ".join(f"{name} ({count})" for name, count in sorted(strange.items()))
    raise UsageError(
        f"{what}: operators that cannot be imported, and how often each is there: {text}; write"
        " them with others, or convert the model to ONNX"
    )


def _type(dtype: np.dtype[Any], shape: tuple[int, ...]) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), shape)


def _value(proto: Any) -> Value:
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return Value(None, None)
    sizes = [item.dim_value if item.HasField("dim_value") else None for item in tensor.shape.dim]
    return Value(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), tuple(sizes))
