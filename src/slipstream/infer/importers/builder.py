"""Builder of a graph, node by node; the shape of each value is known once the value is added."""

# The stubs of onnx do not state all types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array, Attribute, Graph, Node, Value

OPSET = 17  # version of ONNX's operators that all importers write
# Largest number of elements of one value. No network comes near this limit, which bounds the memory
# that a damaged file can request.
LARGEST_VALUE = 2**28
LONGEST_AXIS = 2**26  # elements of an axis; chosen by hand, also against damaged files
LARGEST_READ = 1024  # elements; shape inference reads constants only up to this size
EPSILON = 1e-5


class Builder:
    """A builder of a graph in which all shapes are fixed.

    Set the attribute `where` to the part of the model that is being imported, such as "conv1
    (Convolution)". Error messages quote `where`, and the first word of `where` begins the names of
    new values.
    """

    def __init__(self, name: str) -> None:
        self.where = name
        self._graph = Graph({}, [], [], {}, opsets={"": OPSET}, name=name)
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()

    def input(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> str:
        """Add an input of the graph; the value's name is exactly `name`."""
        self._check_size(tuple(shape))
        self._taken.add(name)
        self._graph.inputs[name] = Value(np.dtype(dtype), tuple(shape))
        return name

    def constant(self, stem: str, array: npt.ArrayLike) -> str:
        """Add a constant and return its name; 64-bit floats become 32-bit floats."""
        elements = np.asarray(array)
        if elements.dtype == np.float64:
            elements = elements.astype(np.float32)
        name = self._fresh(f"{self._stem}.{stem}")
        self._graph.constants[name] = np.ascontiguousarray(elements).reshape(elements.shape)
        return name

    def add(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node with one output and return its name; the input "" means an omitted input."""
        return self.add_several(1, op, *inputs, **attributes)[0]

    def add_several(self, count: int, op: str, *inputs: str, **attributes: Attribute) -> list[str]:
        """Add a node with `count` outputs and return their names."""
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
        """Return the elements of a value if it is a constant, or None if it is computed."""
        return self._graph.constants.get(name)

    def finish(self, outputs: Mapping[str, str]) -> Graph:
        """Return the finished graph.

        Args:
            outputs: Name of the value that becomes an output of the graph, by the output's name.

        Raises:
            UsageError: If there is no output.
        """
        names: dict[str, str] = {}
        for output, value in outputs.items():
            self.where = output
            computed = value in self._graph.values and value not in names
            names[value if computed else self.add("Identity", value)] = output
        for name in [*self._graph.values, *self._graph.constants]:
            if name not in names and name in outputs:
                names[name] = self._fresh(name)
        if not names:
            raise UsageError(f"{self._graph.name}: the model has no output")
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
            types_of_outputs = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=opsets
            )
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            raise self._misfit(node, str(error)) from error
        values = [
            _value(types_of_outputs[name]) for name in node.outputs if name in types_of_outputs
        ]
        if len(values) != len(node.outputs) or any(value.fixed is None for value in values):
            raise self._misfit(node, "the shape of its result cannot be inferred")
        for value in values:
            self._check_size(value.fixed or ())
        return values

    def _misfit(self, node: Node, why: str) -> UsageError:
        shapes = ", ".join(str(self.shape(name)) for name in node.inputs if name)
        return UsageError(f"{self.where}: {node.op} with inputs of the shapes {shapes}: {why}")

    def _check_size(self, shape: tuple[int, ...]) -> None:
        size = 1
        for length in shape:
            size *= length
        if size > LARGEST_VALUE or not all(1 <= length <= LONGEST_AXIS for length in shape):
            raise UsageError(
                f"{self.where}: a value has the shape {shape}; allowed: dimensions of 1 to"
                f" {LONGEST_AXIS} and at most {LARGEST_VALUE} elements"
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


def distinct_names(names: Iterable[str]) -> list[str]:
    """Make names distinct: a name that occurs again gets a number, as in a, a_2, a_3."""
    counts: Counter[str] = Counter()
    result: list[str] = []
    for name in names:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return result


def refuse_all(what: str, operators: Sequence[str], supported: Sequence[str]) -> None:
    """Raise one UsageError that lists all unsupported operators, each with its number of uses.

    Args:
        what: Name of the model in the message.
        operators: Names of the model's operators, one for each use.
        supported: Names of the operators that can be imported.
    """
    unsupported = Counter(name for name in operators if name not in supported)
    if not unsupported:
        return
    text = ", ".join(f"{name} ({count})" for name, count in sorted(unsupported.items()))
    raise UsageError(
        f"{what}: these operators cannot be imported (with their number of uses): {text}; replace"
        " them by others, or convert the model to ONNX"
    )


def _type(dtype: np.dtype[Any], shape: tuple[int, ...]) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), shape)


def _value(proto: Any) -> Value:
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return Value(None, None)
    sizes = [item.dim_value if item.HasField("dim_value") else None for item in tensor.shape.dim]
    return Value(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), tuple(sizes))
