"""Run a graph on our kernels, and the operators without a kernel on ONNX Runtime."""

# NumPy's stubs leave the element types of arrays open.
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
    """A compiled graph. Calls run one at a time, because all calls share the worker threads."""

    def __init__(
        self,
        graph: Graph,
        formats: Mapping[str, Format],
        threads: int,
        shifts: Mapping[str, Sequence[float]] | None = None,
        *,
        is_dynamic: bool = False,
    ) -> None:
        """Compile a graph.

        Args:
            graph: Graph whose shapes are fixed.
            formats: Format of each value that is not stored as float32.
            threads: Number of threads of each call.
            shifts: Numbers to add to the biases of products with rounded weights (see `lower`).
            is_dynamic: Whether products with large matrices are computed in int8 (see `lower`;
                default False).
        """
        parts = partition(graph, OPERATIONS, formats)
        self._outputs = list(graph.outputs)
        constants = graph.constants
        self._constant_outputs = {n: constants[n] for n in graph.outputs if n in constants}
        self.compiled = lower(parts.body, formats, OPERATIONS, shifts, is_dynamic=is_dynamic)
        self._dtypes = {name: _dtype(parts.body, name) for name in self.compiled.inputs}
        self._shapes = {name: parts.body.shape(name) or () for name in self.compiled.outputs}
        self._workers = kernels.Workers(threads)
        self._head = _on_onnx_runtime(parts.head, threads)
        self._tail = _on_onnx_runtime(parts.tail, threads)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs of the graph, by name, as new arrays."""
        values = self._with_head(inputs)
        buffers, outputs = self._buffers(values)
        self.compiled.program.run(buffers, self._workers)
        values.update(outputs)
        values.update({name: array.copy() for name, array in self._constant_outputs.items()})
        if self._tail is not None:
            values.update(self._tail.run(values))
        return {name: values[name] for name in self._outputs}

    def profile(self, inputs: Mapping[str, Array]) -> list[tuple[str, str, float]]:
        """Run our kernels once, and return the time that each call of a kernel took.

        Each entry has the name of the kernel, the name of the value that the call computes, and the
        time in seconds.
        """
        buffers, _ = self._buffers(self._with_head(inputs))
        seconds = self.compiled.program.profile(buffers, self._workers)
        names = self.compiled.program.names
        return list(zip(names, self.compiled.steps, seconds, strict=True))

    def _with_head(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs, and the results of the graph's head, which ONNX Runtime computes."""
        return {**inputs, **({} if self._head is None else self._head.run(inputs))}

    def _buffers(self, values: Mapping[str, Array]) -> tuple[list[Array], dict[str, Array]]:
        readable = [_readable(values[name], dtype) for name, dtype in self._dtypes.items()]
        outputs = {name: np.empty(shape, np.float32) for name, shape in self._shapes.items()}
        return [*readable, *outputs.values(), *self.compiled.constants], outputs


def _dtype(body: Graph, name: str) -> np.dtype[Any]:
    """Return the dtype in which our kernels read an input.

    The dtype is uint8 if the input is uint8 in the graph, else float32.
    """
    return np.dtype(np.uint8 if body.inputs[name].dtype == np.uint8 else np.float32)


def _readable(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array as kernels read it: contiguous, aligned and of the given dtype.

    A tensor that was received within a network message can begin at any address.
    """
    flags = array.flags
    if array.dtype == dtype and flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, dtype, ["C", "A"])


def _on_onnx_runtime(graph: Graph | None, threads: int) -> Executable | None:
    if graph is None:
        return None
    recipe = Recipe(engine=OnnxRuntime.name, precision="fp32")
    return OnnxRuntime().prepare(graph, recipe, threads)
