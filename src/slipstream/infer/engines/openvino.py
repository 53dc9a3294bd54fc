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
from slipstream.infer.engines.added_values import array_of_openvino_tensor, openvino_tensor
from slipstream.infer.engines.function_bodies import with_functions_expanded
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.openvino_defects import defects_of
from slipstream.infer.engines.openvino_repairs import with_right_maxima
from slipstream.infer.engines.openvino_replacements import with_replacements
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
from slipstream.infer.rewrites import optimise

DEVICE = "CPU"
FUNCTIONS = ("CausalConvWithState", "LinearAttention")  # operators of ONNX that OpenVINO lacks
# Beginnings of lines in error messages that name places in OpenVINO's sources.
DEVELOPER_LINES = ("Exception from", "Check '", "While validating")
LONGEST_REASON = 300  # greatest number of characters of an error in a table
HALVES: Mapping[Precision, str] = {"bf16": "bf16", "fp16": "f16"}  # OpenVINO's names
FIRST_CALL = threading.Lock()
CORE_CREATION = threading.Lock()


class OpenVino(GraphEngine):
    """OpenVINO with its kernels for CPUs."""

    name = "openvino"

    def available(self) -> str | None:
        """Return None if OpenVINO is installed, else a message that it is not."""
        return missing("openvino")

    def precisions(self) -> tuple[Precision, ...]:
        """Return the precisions of this processor, which may lack bf16 and fp16."""
        capabilities = openvino_core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
        halves: list[Precision] = [half for half in HALVES if half.upper() in capabilities]
        return ("fp32", *halves, "int8", "int8-weights")

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`."""
        defects = defects_of(graph)
        if defects:
            raise UnsupportedError(f"OpenVINO computes wrong results here: {'; '.join(defects)}")
        settings = _settings(recipe, threads)
        graph = _with_known_operators(graph)
        model, large = _read(with_right_maxima(standard_graph(graph, recipe)))
        models = [_compiled(model, settings) for _ in range(recipe.streams)]
        return _Compiled(models, large, rounded_constants(graph, recipe))


def _with_known_operators(graph: Graph) -> Graph:
    expanded = with_functions_expanded(graph, FUNCTIONS)
    return with_replacements(graph if expanded is graph else optimise(expanded)[0])


def openvino_core() -> Any:
    """Return the only `openvino.Core` of this process, which is never released.

    The CPU plugin of a core gives the calling thread an alternate stack for signals, and restores
    the thread's previous stack when the core ends. If two cores do not end in the opposite order of
    their creation, the thread keeps a stack that was freed, and the next signal ends the process
    (OpenVINO 2026.4.1).
    """
    with CORE_CREATION:
        return _core()


@functools.cache
def _core() -> Any:
    return openvino_package().Core()


def openvino_package() -> Any:
    """Import the package openvino without its telemetry, and return the package.

    The telemetry forks a process and sends data to the network when it is imported. OpenVINO works
    without the telemetry.
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
    """Return a pair: OpenVINO's model of a graph in standard operators, and the large constants.

    The model does not copy the arrays of the large constants, so the arrays must live as long as
    the model. OpenVINO's own reader would copy the constants, and accepts at most 2 GiB.
    """
    bare, large = bare_graph(graph, _is_readable)
    try:
        model = openvino_core().read_model(io.BytesIO(to_model(bare).SerializeToString()))
        _name_inputs(model, bare)
        for parameter in model.get_parameters():
            name = parameter.output(0).get_names() & large.keys()
            if name:
                parameter.output(0).replace(_constant(large[name.pop()]).output(0))
                model.remove_parameter(parameter)
        model.validate_nodes_and_infer_types()
    except RuntimeError as error:
        raise UnsupportedError(f"OpenVINO cannot read the graph: {_reason(error)}") from error
    return model, list(large.values())


def _name_inputs(model: Any, graph: Graph) -> None:
    """Give the inputs of OpenVINO's model the names that the graph gives them.

    If an input is read by operators that do nothing, OpenVINO drops the input's name, and calls the
    input by the name of the operators' result. Callers do not know this name. OpenVINO's model and
    the graph have their inputs in the same order.

    Raises:
        UnsupportedError: an input of OpenVINO's model does not clearly belong to one input of the
            graph.
    """
    ports = [parameter.output(0) for parameter in model.get_parameters()]
    unnamed = [port for port in ports if graph.inputs.keys().isdisjoint(port.get_names())]
    known = {name for port in ports for name in port.get_names()}
    read = {name for node in graph.nodes for name in node.reads()} | set(graph.outputs)
    missing_names = [name for name in graph.inputs if name in read and name not in known]
    if unnamed and len(unnamed) != len(missing_names):
        names = ", ".join(sorted(name for port in unnamed for name in port.get_names()))
        raise UnsupportedError(f"OpenVINO calls inputs {names}, which the graph does not")
    for port, name in zip(unnamed, missing_names, strict=False):
        port.add_names({name})


def _is_readable(array: Array) -> bool:
    """Tell whether OpenVINO reads an array in place: if it has several axes and no bfloat16."""
    return array.ndim > 1 and array.dtype != BFLOAT16


def _constant(array: Array) -> Any:
    """Return a constant of OpenVINO that uses the memory of the array.

    OpenVINO requires writable memory, but only reads this memory.
    """
    address = array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    numbers = np.ctypeslib.as_array(address, (array.nbytes,)).view(array.dtype)
    return openvino_package().op.Constant(numbers.reshape(array.shape), shared_memory=True)


def _compiled(model: Any, settings: Mapping[str, Any]) -> Any:
    try:
        return openvino_core().compile_model(model, DEVICE, dict(settings))
    except RuntimeError as error:
        raise UnsupportedError(f"OpenVINO cannot compile the graph: {_reason(error)}") from error


def _reason(error: RuntimeError) -> str:
    """Return the reason of OpenVINO's error, without the lines that name source files."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(DEVELOPER_LINES)]
    return " ".join(reasons or lines)[:LONGEST_REASON]


class _Compiled(UnprofiledExecutable):
    """One compiled model per stream; each call uses an infer request of its own.

    OpenVINO 2026.4.1 can run several streams in one model. If several streams share compressed
    weights, some streams return wrong numbers, because the streams prepare the weights at the same
    time. The first calls in a process must not overlap, or they can deadlock: OpenVINO's binding
    can hold a lock and wait for the GIL, while the thread with the GIL waits for this lock.
    """

    def __init__(
        self, models: Sequence[Any], large: Sequence[Array], small: Mapping[str, Small]
    ) -> None:
        """Make the pool of infer requests.

        Args:
            models: Compiled models, one per stream.
            large: Arrays of the large constants, which the models read without a copy.
            small: Form of each constant that OpenVINO rounds, by the constant's name (see
                `Executable.small`).
        """
        self.small = small
        self._models, self._large = list(models), large
        self._turns = itertools.cycle(self._models)
        self._pool: Pool[Any] = Pool(lambda: next(self._turns).create_infer_request())
        inputs, outputs = models[0].inputs, models[0].outputs
        self._ports = list(inputs)
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
            at: openvino_tensor(array, self._ports[at])
            for name, array in inputs.items()
            if (at := self._inputs.get(name)) is not None
        }
        with self._pool.borrowed() as request:
            request.infer(arrays_by_port, share_inputs=True, share_outputs=True)
            arrays = [
                array_of_openvino_tensor(request.get_output_tensor(at))
                for at in range(len(self._outputs))
            ]
        return {
            name: array
            for names, array in zip(self._outputs, arrays, strict=True)
            for name in names
        }

    def close(self) -> None:
        self._pool.clear()
        self._ports, self._inputs, self._outputs = [], {}, []
        self._turns = itertools.cycle([])
        self._models.clear()
        self._large = []
