"""Runs a graph on our kernels, and on ONNX Runtime what they have not."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from slipstream import _kernels as kernels
from slipstream.infer.engines.onnxruntime import OnnxRuntime
from slipstream.infer.engines.protocol import Executable, Recipe
from slipstream.infer.graph import Array, Graph
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
        self._body = parts.body
        self.compiled = lower(parts.body, formats, OPERATIONS, shifts, is_dynamic=is_dynamic)
        self._workers = kernels.Workers(threads)
        self._head = _elsewhere(parts.head, threads)
        self._tail = _elsewhere(parts.tail, threads)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the graph, by name; arrays are new."""
        values = self._given(inputs)
        buffers, outputs = self._buffers(values)
        self.compiled.program.run(buffers, self._workers)
        values.update(outputs)
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
        given = [np.ascontiguousarray(values[n], self._dtype(n)) for n in self.compiled.inputs]
        outputs = {
            name: np.empty(self._body.shape(name) or (), np.float32)
            for name in self.compiled.outputs
        }
        return [*given, *outputs.values(), *self.compiled.constants], outputs

    def _dtype(self, name: str) -> type[np.uint8] | type[np.float32]:
        """Bytes stay bytes; whatever else comes from before our part becomes float32."""
        return np.uint8 if self._body.inputs[name].dtype == np.uint8 else np.float32


def _elsewhere(graph: Graph | None, threads: int) -> Executable | None:
    if graph is None:
        return None
    recipe = Recipe(engine=OnnxRuntime.name, precision="fp32")
    return OnnxRuntime().prepare(graph, recipe, threads)
