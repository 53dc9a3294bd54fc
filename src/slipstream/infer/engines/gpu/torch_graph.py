"""Graphs as modules of PyTorch, which Inductor compiles."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx
from torch.fx.proxy import GraphAppendingTracer

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.gpu.accelerator import torch_dtype
from slipstream.infer.engines.gpu.operators import OPERATORS
from slipstream.infer.engines.gpu.operators.node_call import NodeCall
from slipstream.infer.graph.graph import SLIPSTREAM, Array, Graph, Node
from slipstream.infer.rewrites.expand import EXPANSIONS, expand


def torch_module(graph: Graph, number: torch.dtype) -> fx.GraphModule:
    """Return a module that takes the inputs of a graph in its order, and returns its outputs.

    Args:
        graph: Graph with fixed shapes.
        number: Dtype in which the graph's float32 numbers are computed. Inputs and outputs keep
            their dtypes.

    Raises:
        UnsupportedError: operators of the graph are not computed by PyTorch; the error names them.
    """
    graph = expand(graph, keep=[op for op in EXPANSIONS if f"{SLIPSTREAM}.{op}" in OPERATORS])
    unknown = sorted({_name(node) for node in graph.nodes} - OPERATORS.keys())
    if unknown:
        raise UnsupportedError(f"PyTorch computes no {', '.join(unknown)} here")
    return _Recorder(graph, number).module()


def _name(node: Node) -> str:
    """Return the operator of a node as `OPERATORS` has it."""
    return f"{node.domain}.{node.op}" if node.domain else node.op


class _Recorder:
    """A recorder of a graph's nodes as calls of PyTorch."""

    def __init__(self, graph: Graph, number: torch.dtype) -> None:
        self._graph, self._number = graph, number
        self._record = fx.Graph()
        self._tracer = GraphAppendingTracer(self._record)
        self._root = torch.nn.Module()
        self._values: dict[str, Any] = {}

    def module(self) -> fx.GraphModule:
        """Record all nodes and return the module."""
        graph = self._graph
        for at, (name, value) in enumerate(graph.inputs.items()):
            proxy = fx.Proxy(self._record.placeholder(f"input_{at}"), self._tracer)
            is_number = value.dtype == np.float32 and self._number != torch.float32
            self._values[name] = proxy.to(self._number) if is_number else proxy
        for at, (name, array) in enumerate(graph.read_constants().items()):
            self._values[name] = self._constant(f"constant_{at}", array)
        for node in graph.nodes:
            self._add(node)
        results = tuple(self._result(name).node for name in graph.outputs)
        self._record.output(results)
        self._record.eliminate_dead_code()
        return fx.GraphModule(self._root, self._record)

    def _constant(self, attribute: str, array: Array) -> fx.Proxy:
        dtype = torch_dtype(array.dtype)
        raw = torch.from_numpy(np.array(array, order="C").reshape(-1).view(np.uint8))
        tensor = raw.view(dtype).reshape(array.shape)
        if array.dtype == np.float32:
            tensor = _narrowed(tensor, self._number)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        self._root.register_buffer(attribute, tensor)
        return fx.Proxy(self._record.get_attr(attribute), self._tracer)

    def _add(self, node: Node) -> None:
        call = NodeCall(self._graph, node, self._values, self._number)
        results = OPERATORS[_name(node)](call)
        if len(node.outputs) == 1:
            self._values[node.output] = results[0] if node.op == "Split" else results
            return
        for at, name in enumerate(node.outputs):
            if name:
                self._values[name] = results[at] if node.op in ("Split", "TopK") else results

    def _result(self, name: str) -> Any:
        """Return an output in its own dtype and in row-major order."""
        dtype = self._graph.value(name).dtype
        value = self._values[name]
        if dtype == np.float32 and self._number != torch.float32:
            value = value.to(torch.float32)
        return value.contiguous()


def _narrowed(tensor: torch.Tensor, number: torch.dtype) -> torch.Tensor:
    """Return float32 numbers in another dtype, in which finite numbers stay finite.

    Masks of attention have the least float32, and zero times infinity would be NaN.
    """
    limits = torch.finfo(number)
    finite = tensor.clamp(limits.min, limits.max)
    return torch.where(tensor.isinf(), tensor, finite).to(number)
