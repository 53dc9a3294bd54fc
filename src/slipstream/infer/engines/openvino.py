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
from slipstream.infer.engines.openvino_defects import defects_of
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
# Lines of errors that begin so name places in OpenVINO's sources.
DEVELOPER_LINES = ("Exception from", "Check '", "While validating")
LONGEST_REASON = 300  # characters of an error that fit a table
HALVES: Mapping[Precision, str] = {"bf16": "bf16", "fp16": "f16"}  # OpenVINO's names of them
FIRST_CALL = threading.Lock()
CORE_CREATION = threading.Lock()


class OpenVino(GraphEngine):
    """OpenVINO with its kernels for CPUs."""

    name = "openvino"

    def available(self) -> str | None:
        """Return None, or a message that it is not installed."""
        return missing("openvino")

    def precisions(self) -> tuple[Precision, ...]:
        """Return the precisions of this processor; not every processor has bf16 and fp16."""
        capabilities = openvino_core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
        halves: list[Precision] = [half for half in HALVES if half.upper() in capabilities]
        return ("fp32", *halves, "int8", "int8-weights")

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`."""
        defects = defects_of(graph)
        if defects:
            raise UnsupportedError(f"OpenVINO computes wrong results here: {'; '.join(defects)}")
        settings = _settings(recipe, threads)
        model, large = _read(standard_graph(graph, recipe))
        models = [_compiled(model, settings) for _ in range(recipe.streams)]
        _check_names(models[0], graph)
        return _Compiled(models, large, rounded_constants(graph, recipe))


def openvino_core() -> Any:
    """Return this process's only core, which is never released.

    The CPU plugin of a core gives the thread an alternate stack for signals, and restores the
    previous stack when the core ends. If cores do not end in the opposite order, the thread keeps a
    stack that was freed, and the next signal ends the process (OpenVINO 2026.4.1).
    """
    with CORE_CREATION:
        return _core()


@functools.cache
def _core() -> Any:
    return openvino_package().Core()


def openvino_package() -> Any:
    """Import the package without its telemetry, and return it.

    The telemetry forks and sends to the network when it is imported. OpenVINO works without it.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # pyright: ignore[reportArgumentType]
    import openvino

    return openvino


def _settings(recipe: Recipe, threads: int) -> dict[str, Any]:
    halves = (HALVES[name] for name in (recipe.precision, recipe.rest) if name in HALVES)
    return {
        "INFERENCE_PRECISION_HINT": next(halves, "f32"),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": max(threads // recipe.streams, 1),
        "ENABLE_CPU_PINNING": False,
    }


def _read(graph: Graph) -> tuple[Any, Sequence[Array]]:
    """Return OpenVINO's model of a graph of standard operators, and its large constants.

    The model keeps reading the constants' arrays. OpenVINO's own reader would copy them, and
    accepts at most 2 GiB.
    """
    bare, large = bare_graph(graph, _is_readable)
    try:
        model = openvino_core().read_model(io.BytesIO(to_model(bare).SerializeToString()))
        for parameter in model.get_parameters():
            name = parameter.output(0).get_names() & large.keys()
            if name:
                parameter.output(0).replace(_constant(large[name.pop()]).output(0))
                model.remove_parameter(parameter)
        model.validate_nodes_and_infer_types()
    except RuntimeError as error:
        raise UnsupportedError(f"OpenVINO cannot read the graph: {_reason(error)}") from error
    return model, list(large.values())


def _is_readable(array: Array) -> bool:
    """Tell whether OpenVINO can read a constant from its array: NumPy must have its dtype."""
    return array.ndim > 1 and array.dtype != BFLOAT16


def _constant(array: Array) -> Any:
    """Return OpenVINO's constant in the same memory.

    OpenVINO asks for writable memory, and only reads it.
    """
    address = array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    numbers = np.ctypeslib.as_array(address, (array.nbytes,)).view(array.dtype)
    return openvino_package().op.Constant(numbers.reshape(array.shape), shared_memory=True)


def _compiled(model: Any, settings: Mapping[str, Any]) -> Any:
    try:
        return openvino_core().compile_model(model, DEVICE, dict(settings))
    except RuntimeError as error:
        raise UnsupportedError(f"OpenVINO cannot compile the graph: {_reason(error)}") from error


def _check_names(compiled: Any, graph: Graph) -> None:
    """Check that the inputs have the names that the graph gives them.

    An input that passes through operators that do nothing can get the name of their result; then no
    caller would supply it.

    Raises:
        UnsupportedError: an input has another name.
    """
    for port in compiled.inputs:
        if graph.inputs.keys().isdisjoint(port.get_names()):
            names = ", ".join(sorted(port.get_names()))
            raise UnsupportedError(f"OpenVINO calls an input {names}, which the graph does not")


def _reason(error: RuntimeError) -> str:
    """Return OpenVINO's reason without the lines that name places in its sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(DEVELOPER_LINES)]
    return " ".join(reasons or lines)[:LONGEST_REASON]


class _Compiled(UnprofiledExecutable):
    """One compiled model per stream; each call uses an infer request of its own.

    OpenVINO 2026.4.1 can run several streams in one model, but with compressed weights some of them
    return wrong numbers, because the streams prepare their shared weights at the same time. The
    first calls in a process must not overlap: its binding waits for Python's lock while it has a
    lock that the thread with Python's lock waits for.
    """

    def __init__(
        self, models: Sequence[Any], large: Sequence[Array], small: Mapping[str, Small]
    ) -> None:
        """Make the pool of requests.

        Args:
            models: Compiled models, one per stream.
            large: Arrays that the models keep reading.
            small: Constants that the engine rounds, as in `Executable`.
        """
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
        arrays_by_port = {
            self._inputs[name]: array for name, array in inputs.items() if name in self._inputs
        }
        with self._pool.borrowed() as request:
            request.infer(arrays_by_port, share_inputs=True, share_outputs=True)
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
