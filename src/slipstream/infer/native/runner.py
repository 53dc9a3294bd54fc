"""Runs a graph on our kernels, and on ONNX Runtime what they have not."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream import _kernels as kernels
from slipstream.infer.engines.onnxruntime import OnnxRuntime
from slipstream.infer.engines.protocol import Executable, Recipe
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.native.formats import Format
from slipstream.infer.native.lower import lower
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.partition import partition


class Runner:
    """A compiled graph. One call at a time: its workers are one team."""

    def __init__(
        self,
        graph: Graph,
        formats: Mapping[str, Format],
        threads: int,
        shifts: Mapping[str, Sequence[float]] | None = None,
        *,
        is_dynamic: bool = False,
    ) -> None:
        """See `lower`."""
        parts = partition(graph, OPERATIONS, formats)
        self._outputs = list(graph.outputs)
        known = graph.constants
        self._answers = {name: known[name] for name in graph.outputs if name in known}
        self.compiled = lower(parts.body, formats, OPERATIONS, shifts, is_dynamic=is_dynamic)
        self._dtypes = {name: _dtype(parts.body, name) for name in self.compiled.inputs}
        self._shapes = {name: parts.body.shape(name) or () for name in self.compiled.outputs}
        self._workers = kernels.Workers(threads)
        self._head = _elsewhere(parts.head, threads)
        self._tail = _elsewhere(parts.tail, threads)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the graph, by name; arrays are new."""
        values = self._given(inputs)
        buffers, outputs = self._buffers(values)
        self.compiled.program.run(buffers, self._workers)
        values.update(outputs)
        values.update({name: array.copy() for name, array in self._answers.items()})
        if self._tail is not None:
            values.update(self._tail.run(values))
        return {name: values[name] for name in self._outputs}

    def profile(self, inputs: Mapping[str, Array]) -> list[tuple[str, str, float]]:
        """(kernel, value, seconds) of every step of our part."""
        buffers, _ = self._buffers(self._given(inputs))
        seconds = self.compiled.program.profile(buffers, self._workers)
        names = self.compiled.program.names
        return list(zip(names, self.compiled.steps, seconds, strict=True))

    def _given(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs, and what is computed before our part."""
        return {**inputs, **({} if self._head is None else self._head.run(inputs))}

    def _buffers(self, values: Mapping[str, Array]) -> tuple[list[Array], dict[str, Array]]:
        given = [_placed(values[name], dtype) for name, dtype in self._dtypes.items()]
        outputs = {name: np.empty(shape, np.float32) for name, shape in self._shapes.items()}
        return [*given, *outputs.values(), *self.compiled.constants], outputs


def _dtype(body: Graph, name: str) -> np.dtype[Any]:
    """Bytes stay bytes; whatever else comes from before our part becomes float32."""
    return np.dtype(np.uint8 if body.inputs[name].dtype == np.uint8 else np.float32)


def _placed(array: Array, dtype: np.dtype[Any]) -> Array:
    """As kernels read it. Tensors of a message may begin anywhere."""
    flags = array.flags
    if array.dtype == dtype and flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, dtype, ["C", "A"])


def _elsewhere(graph: Graph | None, threads: int) -> Executable | None:
    if graph is None:
        return None
    recipe = Recipe(engine=OnnxRuntime.name, precision="fp32")
    return OnnxRuntime().prepare(graph, recipe, threads)
