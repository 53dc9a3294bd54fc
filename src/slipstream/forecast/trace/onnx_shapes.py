"""Shapes of all tensors of an ONNX model, for given sizes of its open dimensions.

The operators are visited in order of execution. Tensors that depend only on shapes and constants
are computed; of all other tensors, only the shape is inferred. The shape of a Reshape's result is
therefore known even if the model computes that shape.
"""

# The stubs of onnx and NumPy leave some types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.shape_inference
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from slipstream.errors import UsageError
from slipstream.forecast.trace.onnx_batch import Batch, bind
from slipstream.forecast.trace.onnx_graph import LARGEST_SHAPE, OnnxNode, ShapedGraph, module_path
from slipstream.forecast.trace.steps import TensorType

_UNRUN = {"If", "Loop", "Scan", "SequenceMap"}


def settle(model: ModelProto, batch: Batch) -> ShapedGraph:
    """Return the graph of a model for a given batch, in which every shape is known.

    The first dimension of the inputs is the batch. An open first dimension gets the number of
    samples. If the file fixes the first dimension, the shapes stay as in the file, and the factor
    `TensorType.times` of every tensor that depends on inputs is the number of samples divided by
    the first dimension in the file.

    Args:
        model: ONNX model without its large constants, as `onnx_graph.read` returns it.
        batch: Number of samples, and sizes for the model's other open dimensions, such as the
            sequence length.

    Raises:
        UsageError: A dimension stays open, `batch` contradicts the model, or an operator is
            unknown, has an output of unknown shape, or is a branch or a loop.
    """
    return _Walk(model, batch).run()


class _Walk:
    """Builder of a `ShapedGraph` that visits each operator of a model once."""

    def __init__(self, model: ModelProto, batch: Batch) -> None:
        self._model, self._batch = model, batch
        self._versions = {item.domain: item.version for item in model.opset_import}
        self._types: dict[str, TypeProto] = {}
        self._data: dict[str, TensorProto] = {}
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self._tensors: dict[str, TensorType] = {}
        self._nodes: list[OnnxNode] = []

    def run(self) -> ShapedGraph:
        graph = self._model.graph
        for item in graph.initializer:
            self._store(item)
        stored = tuple(self._tensors)
        inputs = [item for item in graph.input if item.name not in self._tensors]
        shapes, times = bind(inputs, self._batch)
        for item in inputs:
            kind = item.type.tensor_type.elem_type
            self._put(item.name, kind, shapes[item.name], times=times, fixed=False)
        for node in graph.node:
            self._visit(node)
        outputs = tuple(item.name for item in graph.output)
        names = tuple(item.name for item in inputs)
        nodes = tuple(self._nodes)
        return ShapedGraph(nodes, self._tensors, stored, names, outputs, self._constants)

    def _store(self, item: TensorProto) -> None:
        self._put(item.name, item.data_type, tuple(item.dims), times=Fraction(1), fixed=True)
        if math.prod(item.dims) <= LARGEST_SHAPE and item.data_location != TensorProto.EXTERNAL:
            self._data[item.name] = item
            # An initialiser that may be trained is not a constant, even if it is small.
            if not item.dims or not self._tensors[item.name].is_float:
                self._constants[item.name] = numpy_helper.to_array(item)

    def _put(
        self, name: str, kind: int, shape: Sequence[int], *, times: Fraction, fixed: bool
    ) -> None:
        self._types[name] = helper.make_tensor_type_proto(kind, shape)
        self._tensors[name] = TensorType(tuple(shape), _dtype(kind), times, fixed)

    def _visit(self, node: NodeProto) -> None:
        if node.op_type in _UNRUN:
            raise UsageError(
                f"{_called(node)}: branches and loops cannot be forecast; export the model without"
                " them"
            )
        inputs = [name for name in node.input if name]
        missing = [name for name in inputs if name not in self._tensors]
        if missing:
            raise UsageError(
                f"{_called(node)}: {missing[0]!r} is neither an input of the model nor an output of"
                " an earlier operator"
            )
        if node.op_type in ("Shape", "Size"):
            self._know(node, self._measured(node, self._tensors[inputs[0]].shape))
        elif all(name in self._constants for name in inputs) and not _draws(node.op_type):
            self._know(node, self._computed(node))
        else:
            self._infer(node, inputs)

    def _know(self, node: NodeProto, values: Sequence[npt.NDArray[Any]]) -> None:
        for name, value in zip(node.output, values, strict=False):
            array = np.asarray(value)
            item = numpy_helper.from_array(array, name)
            self._put(name, item.data_type, array.shape, times=Fraction(1), fixed=True)
            self._constants[name] = array
            self._data[name] = item

    def _measured(self, node: NodeProto, shape: tuple[int, ...]) -> list[npt.NDArray[Any]]:
        if node.op_type == "Size":
            return [np.array(math.prod(shape), dtype=np.int64)]
        ends = _attributes(node)
        return [np.array(shape[ends.get("start", 0) : ends.get("end")], dtype=np.int64)]

    def _computed(self, node: NodeProto) -> list[npt.NDArray[Any]]:
        values = [self._constants[name] for name in node.input if name]
        feeds = dict(zip([name for name in node.input if name], values, strict=True))
        graph = helper.make_graph(
            [node],
            "one",
            [ValueInfoProto(name=name, type=self._types[name]) for name in feeds],
            [ValueInfoProto(name=name) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=list(self._model.opset_import))
        try:
            with np.errstate(all="ignore"):
                results: Any = ReferenceEvaluator(model).run(None, feeds)
        except Exception as error:  # any reference implementation may fail
            raise UsageError(f"{_called(node)} cannot be computed: {error}") from error
        return list(results)

    def _infer(self, node: NodeProto, inputs: Sequence[str]) -> None:
        version = self._versions.get(node.domain, 0)
        try:
            schema = onnx.defs.get_schema(node.op_type, version, node.domain)
            types = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {name: self._types[name] for name in inputs},
                {name: self._data[name] for name in inputs if name in self._data},
                opset_imports=list(self._model.opset_import),
                ir_version=self._model.ir_version,
            )
        except Exception as error:  # schemas and protobuf raise many kinds
            raise UsageError(f"{_called(node)} has no shape: {error}") from error
        moving = [self._tensors[name].times for name in inputs if not self._tensors[name].fixed]
        times, fixed = max(moving, default=Fraction(1)), bool(inputs) and not moving
        for name in filter(None, node.output):
            kind = types.get(name, TypeProto()).tensor_type
            shape = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
            if not kind.HasField("shape") or -1 in shape:
                raise UsageError(f"{_called(node)}: the shape of {name!r} depends on data: {shape}")
            self._put(name, kind.elem_type, shape, times=times, fixed=fixed)
        self._nodes.append(
            OnnxNode(
                op=node.op_type,
                name=node.name,
                module=module_path(node),
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                attributes=_attributes(node),
            )
        )


def _draws(op: str) -> bool:
    return op.startswith("Random") or op in ("Bernoulli", "Multinomial")


def _dtype(kind: int) -> str:
    if kind == TensorProto.BFLOAT16:
        return "bfloat16"
    return str(helper.tensor_dtype_to_np_dtype(kind)) if kind else "undefined"


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {item.name: _plain(helper.get_attribute_value(item)) for item in node.attribute}


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _called(node: NodeProto) -> str:
    domain = f"{node.domain}." if node.domain else ""
    return f"{domain}{node.op_type} {node.name or ', '.join(node.output)!r}"
