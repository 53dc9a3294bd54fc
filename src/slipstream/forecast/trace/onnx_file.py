"""Workloads of ONNX files: the file has the forward pass; the backward pass is derived.

Parameters are the floating-point initialisers that operators compute with, except for the limits of
`Clip`, the running statistics of norms, and single numbers.
"""

from __future__ import annotations

from dataclasses import replace

from onnx import ModelProto

from slipstream.forecast.trace.backward import Forward, with_backward
from slipstream.forecast.trace.onnx_batch import Batch as Batch
from slipstream.forecast.trace.onnx_fusion import with_biases, with_casts, with_functions
from slipstream.forecast.trace.onnx_graph import ShapedGraph
from slipstream.forecast.trace.onnx_graph import read as read
from slipstream.forecast.trace.onnx_operators import step_of, trained_inputs
from slipstream.forecast.trace.onnx_shapes import settle
from slipstream.forecast.trace.steps import ForwardStep, TensorType
from slipstream.forecast.work.workload import Workload

_HALVES = {"fp16": "float16", "bf16": "bfloat16"}


def workload(
    model: ModelProto, name: str, batch: Batch, *, precision: str = "fp32", whole: bool = False
) -> Workload:
    """Return the workload of a model's forward and backward pass on a micro-batch.

    Args:
        model: ONNX model without its large constants, as `onnx_graph.read` returns it.
        name: Human-readable name of the model.
        batch: Number of samples, and sizes for the model's other open dimensions, such as the
            sequence length.
        precision: Precision of matrix products: "fp32" (default), "tf32", "fp16" or "bf16". With
            "fp16" and "bf16", the factors of products are cast to 16 bits.
        whole: Whether all floating-point numbers are in 16 bits, parameters included (default
            False).

    Raises:
        UsageError: A shape or an operator is unknown, or the model has no parameters.
    """
    graph = settle(model, batch)
    half = _HALVES.get(precision)
    tensors = dict(graph.tensors)
    if half and whole:
        tensors = {
            key: replace(tensor, dtype=half) if tensor.dtype == "float32" else tensor
            for key, tensor in tensors.items()
        }
    root = model.graph.name or name
    trained = _trained(graph)
    steps = _steps(graph, tensors, root, trained)
    if half and not whole:
        steps = with_casts(steps, tensors, half)
    buffers = (tensors[key] for key in graph.stored if key not in trained)
    return with_backward(
        Forward(
            name=name,
            samples=batch.samples,
            steps=steps,
            tensors=tensors,
            parameters=trained,
            inputs=graph.inputs,
            outputs=graph.outputs,
            buffer_bytes=sum(tensor.num_bytes for tensor in buffers),
        )
    )


def _steps(
    graph: ShapedGraph, tensors: dict[str, TensorType], root: str, trained: dict[str, str]
) -> list[ForwardStep]:
    steps = [step_of(node, tensors, graph.constants, root) for node in graph.nodes]
    # Views of weights move to the front, because a fused step must not read a value that a later
    # step makes.
    steps.sort(key=lambda step: not tensors[step.outputs[0]].fixed)
    steps = with_biases(steps, graph.outputs, trained, tensors)
    return with_functions(steps, graph.outputs, tensors)


def _trained(graph: ShapedGraph) -> dict[str, str]:
    """Return each parameter's name for users; a name with "::" becomes the name MODULE.weight."""
    names: dict[str, str] = {}
    stored = {key for key in graph.stored if graph.tensors[key].is_float}
    for node in graph.nodes:
        for key in trained_inputs(node):
            if key in stored and graph.tensors[key].shape and key not in names:
                renamed = bool(node.module) and "::" in key
                names[key] = f"{node.module}.weight" if renamed else key
    return {key: names[key] for key in graph.stored if key in names}
