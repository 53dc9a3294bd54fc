"""OpenVINO on the CPU."""

# The stubs of openvino leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import functools
import hashlib
import io
import itertools
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.openvino_wrong import wrong_operations
from slipstream.infer.engines.pool import Pool
from slipstream.infer.engines.protocol import Blob, Executable, Precision, Recipe
from slipstream.infer.engines.standard import onnx_bytes
from slipstream.infer.graph import Array, Graph

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


class OpenVino:
    """Runs ONNX models; compiled ones are kept."""

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
        first = _compiled(openvino_core(), onnx_bytes(graph, recipe), settings)
        _check_names(first, graph)
        if recipe.streams == 1:
            return _Compiled([first])
        blob = _exported(first)
        others = [_imported(blob, settings) for _ in range(recipe.streams - 1)]
        return _Compiled([first, *others], blob)

    def kept(self, executable: Executable, recipe: Recipe, threads: int) -> dict[str, bytes]:
        """See `Restoring`: one compiled model, which streams share."""
        assert isinstance(executable, _Compiled)
        return {_blob_name(recipe, threads): _exported(executable.models[0])}

    def restored(
        self, blobs: Mapping[str, Blob], recipe: Recipe, threads: int
    ) -> Executable | None:
        """See `Restoring`. Compiled models of another version are never read."""
        blob = blobs.get(_blob_name(recipe, threads))
        if blob is None:
            return None
        settings = _settings(recipe, threads)
        try:
            made = [_imported(blob, settings) for _ in range(recipe.streams)]
        except RuntimeError:  # of another machine
            return None
        return _Compiled(made, blob)


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


def _blob_name(recipe: Recipe, threads: int) -> str:
    text = f"{recipe.model_dump_json()} {threads}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"openvino-{version('openvino')}-{digest}.blob"


def _compiled(core: Any, model: bytes, settings: Mapping[str, Any]) -> Any:
    try:
        return core.compile_model(core.read_model(io.BytesIO(model)), DEVICE, dict(settings))
    except RuntimeError as error:
        raise UnsupportedError(f"OpenVINO cannot compile the graph: {_first(error)}") from error


def _check_names(compiled: Any, graph: Graph) -> None:
    """Inputs have the names that they had: one that goes through operators which do nothing may
    have that of what comes out, and nobody would give it anything."""
    for port in compiled.inputs:
        if graph.inputs.keys().isdisjoint(port.get_names()):
            names = ", ".join(sorted(port.get_names()))
            raise UnsupportedError(f"OpenVINO calls an input {names}, which the graph does not")


def _imported(blob: Blob, settings: Mapping[str, Any]) -> Any:
    """The compiled model, which goes on reading the blob: its tensor, unlike bytes, is no copy."""
    address = np.frombuffer(blob, np.uint8).ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    writable = np.ctypeslib.as_array(address, (len(blob),))  # it has to be, and is only read
    tensor = openvino_package().Tensor(writable, shared_memory=True)
    return openvino_core().import_model(tensor, DEVICE, dict(settings))


def _exported(compiled: Any) -> bytes:
    stream = io.BytesIO()
    compiled.export_model(stream)
    return stream.getvalue()


def _first(error: RuntimeError) -> str:
    """What OpenVINO says, without the places in its sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(PLACES)]
    return " ".join(said or lines)[:LONGEST_REASON]


class _Compiled:
    """One compiled model per stream; each call runs a request of its own.

    OpenVINO 2026.4.1 can have several streams in one model, and with compressed weights some of
    these compute nonsense: the streams prepare the weights that they share at the same time. And
    the first calls in a process must not be several at a time: its binding then waits for Python's
    lock while it holds one that the thread with Python's lock waits for.
    """

    def __init__(self, models: Sequence[Any], blob: Blob = b"") -> None:
        """`blob` is what they go on reading."""
        self.models = list(models)
        self._blob = blob
        self._turns = itertools.cycle(self.models)
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
        self.models.clear()
        self._blob = b""
