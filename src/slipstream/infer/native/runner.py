"""Runs a graph on our kernels, and on ONNX Runtime what they have not."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]

from slipstream import _kernels as kernels
from slipstream.infer import onnx_file
from slipstream.infer.graph import Array, Graph
from slipstream.infer.native.formats import Format
from slipstream.infer.native.lower import lower
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.partition import partition
from slipstream.infer.rewrites.expand import expand


class Runner:
    """A compiled graph. One call at a time: its workers are one team."""

    def __init__(self, graph: Graph, formats: Mapping[str, Format], threads: int) -> None:
        parts = partition(graph, OPERATIONS, formats)
        self._outputs = list(graph.outputs)
        self._body = parts.body
        self.compiled = lower(parts.body, formats, OPERATIONS)
        self._workers = kernels.Workers(threads)
        self._head = _session(parts.head, threads)
        self._tail = _session(parts.tail, threads)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the graph, by name; arrays are new."""
        values = dict(inputs)
        if self._head is not None:
            values.update(_call(self._head, values))
        values.update(self._compute(values))
        if self._tail is not None:
            values.update(_call(self._tail, values))
        return {name: values[name] for name in self._outputs}

    def profile(self, inputs: Mapping[str, Array]) -> list[tuple[str, str, float]]:
        """(kernel, value, seconds) of every step of our part."""
        values = dict(inputs)
        if self._head is not None:
            values.update(_call(self._head, values))
        buffers, _ = self._buffers(values)
        seconds = self.compiled.program.profile(buffers, self._workers)
        names = self.compiled.program.names
        return list(zip(names, self.compiled.steps, seconds, strict=True))

    def _compute(self, values: Mapping[str, Array]) -> dict[str, Array]:
        buffers, outputs = self._buffers(values)
        self.compiled.program.run(buffers, self._workers)
        return outputs

    def _buffers(self, values: Mapping[str, Array]) -> tuple[list[Array], dict[str, Array]]:
        given = [np.ascontiguousarray(values[n], np.float32) for n in self.compiled.inputs]
        outputs = {
            name: np.empty(self._body.shape(name) or (), np.float32)
            for name in self.compiled.outputs
        }
        return [*given, *outputs.values(), *self.compiled.constants], outputs


def _session(graph: Graph | None, threads: int) -> onnxruntime.InferenceSession | None:
    if graph is None:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    model = onnx_file.to_model(expand(graph)).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _call(session: onnxruntime.InferenceSession, values: Mapping[str, Array]) -> dict[str, Array]:
    names = [item.name for item in session.get_outputs()]
    given = {item.name: values[item.name] for item in session.get_inputs()}
    found = cast("list[Array]", session.run(names, given))
    return dict(zip(names, found, strict=True))
