"""OpenVINO on the CPU."""

# The stubs of openvino leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import functools
import io
import itertools
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.openvino_wrong import wrong_operations
from slipstream.infer.engines.pool import Pool
from slipstream.infer.engines.protocol import (
    Executable,
    GraphEngine,
    Precision,
    Recipe,
    Small,
    UnprofiledExecutable,
)
from slipstream.infer.engines.rounded import rounded_constants
from slipstream.infer.engines.standard import standard_graph
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.graph.onnx_file import BFLOAT16, bare_graph, to_model

DEVICE = "CPU"
PLACES = (
    "Exception from",
    "Check '",
    "While validating",
)  # how lines begin that are for developers
LONGEST_REASON = 300
HALVES: Mapping[Precision, str] = {"bf16": "bf16", "fp16": "f16"}  # and OpenVINO's names of them
FIRST_CALL = threading.Lock()
MAKING = threading.Lock()


class OpenVino(GraphEngine):
    """Runs ONNX models."""

    name = "openvino"

    def available(self) -> str | None:
        """None, or that it is not installed."""
        return missing("openvino")

    def precisions(self) -> tuple[Precision, ...]:
        """Those of 16 bits only where the processor has them."""
        able = openvino_core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
        return ("fp32", *(each for each in HALVES if each.upper() in able), "int8", "int8-weights")

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`."""
        wrong = wrong_operations(graph)
        if wrong:
            raise UnsupportedError(f"OpenVINO is wrong here: {'; '.join(wrong)}")
        settings = _settings(recipe, threads)
        model, large = _read(standard_graph(graph, recipe))
        made = [_compiled(model, settings) for _ in range(recipe.streams)]
        _check_names(made[0], graph)
        return _Compiled(made, large, rounded_constants(graph, recipe))


def openvino_core() -> Any:
    """The only one of this process, which is never let go.

    Each one's CPU plugin gives the thread an alternate stack for signals, and the one before it
    back at its end. If they do not end in the opposite order, the thread is left with a stack that
    was freed, and the next signal ends the process (OpenVINO 2026.4.1).
    """
    with MAKING:
        return _core()


@functools.cache
def _core() -> Any:
    return openvino_package().Core()


def openvino_package() -> Any:
    """The package without its telemetry, which forks and sends to the network when it is imported.

    OpenVINO has something in its place for where that package is not installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # pyright: ignore[reportArgumentType]
    import openvino

    return openvino


def _settings(recipe: Recipe, threads: int) -> dict[str, Any]:
    halves = (HALVES[each] for each in (recipe.precision, recipe.rest) if each in HALVES)
    return {
        "INFERENCE_PRECISION_HINT": next(halves, "f32"),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": max(threads // recipe.streams, 1),
        "ENABLE_CPU_PINNING": False,
    }


def _read(graph: Graph) -> tuple[Any, Sequence[Array]]:
    """The model of a graph of ONNX's own operators, and the large constants that it goes on reading
    where they are: OpenVINO's reader would copy them, and takes no more than 2 GiB."""
    bare, large = bare_graph(graph, _is_readable)
    try:
        made = openvino_core().read_model(io.BytesIO(to_model(bare).SerializeToString()))
        for parameter in made.get_parameters():
            name = parameter.output(0).get_names() & large.keys()
            if name:
                parameter.output(0).replace(_constant(large[name.pop()]).output(0))
                made.remove_parameter(parameter)
        made.validate_nodes_and_infer_types()
    except RuntimeError as error:
        raise UnsupportedError(f"OpenVINO cannot read the graph: {_first(error)}") from error
    return made, list(large.values())


def _is_readable(array: Array) -> bool:
    """Whether OpenVINO can read a constant where it is: NumPy has its own dtype for the numbers."""
    return array.ndim > 1 and array.dtype != BFLOAT16


def _constant(array: Array) -> Any:
    """The constant in the same memory, which has to be writable, and is only read."""
    address = array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    numbers = np.ctypeslib.as_array(address, (array.nbytes,)).view(array.dtype)
    return openvino_package().op.Constant(numbers.reshape(array.shape), shared_memory=True)


def _compiled(model: Any, settings: Mapping[str, Any]) -> Any:
    try:
        return openvino_core().compile_model(model, DEVICE, dict(settings))
    except RuntimeError as error:
        raise UnsupportedError(f"OpenVINO cannot compile the graph: {_first(error)}") from error


def _check_names(compiled: Any, graph: Graph) -> None:
    """Inputs have the names that they had: one that goes through operators which do nothing may
    have that of what comes out, and nobody would give it anything."""
    for port in compiled.inputs:
        if graph.inputs.keys().isdisjoint(port.get_names()):
            names = ", ".join(sorted(port.get_names()))
            raise UnsupportedError(f"OpenVINO calls an input {names}, which the graph does not")


def _first(error: RuntimeError) -> str:
    """What OpenVINO says, without the places in its sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(PLACES)]
    return " ".join(said or lines)[:LONGEST_REASON]


class _Compiled(UnprofiledExecutable):
    """One compiled model per stream; each call runs a request of its own.

    OpenVINO 2026.4.1 can have several streams in one model, and with compressed weights some of
    these compute nonsense: the streams prepare the weights that they share at the same time. And
    the first calls in a process must not be several at a time: its binding then waits for Python's
    lock while it holds one that the thread with Python's lock waits for.
    """

    def __init__(
        self, models: Sequence[Any], large: Sequence[Array], small: Mapping[str, Small]
    ) -> None:
        """`large` is what they go on reading; `small` is as `Executable` has it."""
        self.small = small
        self._models, self._large = list(models), large
        self._turns = itertools.cycle(self._models)
        self._pool: Pool[Any] = Pool(lambda: next(self._turns).create_infer_request())
        inputs, outputs = models[0].inputs, models[0].outputs
        self._inputs = {name: at for at, port in enumerate(inputs) for name in port.get_names()}
        self._outputs = [list(port.get_names()) for port in outputs]
        self._has_run = False

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self._has_run:
            return self._run(inputs)
        with FIRST_CALL:
            outputs = self._run(inputs)
        self._has_run = True
        return outputs

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = {
            self._inputs[name]: array for name, array in inputs.items() if name in self._inputs
        }
        with self._pool.taken() as request:
            request.infer(given, share_inputs=True, share_outputs=True)
            arrays = [
                np.array(request.get_output_tensor(at).data) for at in range(len(self._outputs))
            ]
        return {
            name: array
            for names, array in zip(self._outputs, arrays, strict=True)
            for name in names
        }

    def close(self) -> None:
        self._pool.clear()
        self._inputs, self._outputs = {}, []
        self._turns = itertools.cycle([])
        self._models.clear()
        self._large = []
