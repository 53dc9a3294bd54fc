"""OpenVINO on the CPU."""

# The stubs of openvino leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.pool import Pool
from slipstream.infer.engines.protocol import Executable, Precision, Recipe
from slipstream.infer.engines.standard import onnx_bytes
from slipstream.infer.graph import Array, Graph, Value

DEVICE = "CPU"
PLACES = (
    "Exception from",
    "Check '",
    "While validating",
)  # how lines begin that are for developers
LONGEST_REASON = 300
FIRST_CALL = threading.Lock()
MAKING = threading.Lock()


class OpenVino:
    """Runs ONNX models; compiled ones are kept in the cache."""

    name = "openvino"

    def available(self) -> str | None:
        """None, or that it is not installed."""
        return missing("openvino")

    def precisions(self) -> tuple[Precision, ...]:
        """bf16 only where the processor has it."""
        able = openvino_core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
        narrow: tuple[Precision, ...] = ("bf16",) if "BF16" in able else ()
        return ("fp32", *narrow, "int8", "int8-weights")

    def prepare(self, graph: Graph, recipe: Recipe, threads: int, cache: Path | None) -> Executable:
        """See `Engine`. A compiled model in the cache is taken if all that it depends on is alike:
        OpenVINO's version, recipe and threads."""
        core = openvino_core()
        settings = _settings(recipe, threads)
        blob = None if cache is None else cache / _blob_name(recipe, threads)
        given = _read(blob)
        made: list[Any] = []
        for _ in range(recipe.streams):
            compiled = None if given is None else _imported(core, given, settings)
            if compiled is None:
                compiled = _compiled(core, onnx_bytes(graph, recipe), settings)
                given = _exported(compiled) if blob is not None or recipe.streams > 1 else None
                if blob is not None and given is not None:
                    blob.write_bytes(given)
            made.append(compiled)
        executable = _Compiled(made)
        with FIRST_CALL:
            executable.run({name: _zeros(value) for name, value in graph.inputs.items()})
        return executable


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


def _zeros(value: Value) -> Array:
    return np.zeros(value.fixed or (), value.dtype)


def _settings(recipe: Recipe, threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if "bf16" in (recipe.precision, recipe.rest) else "f32",
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


def _read(blob: Path | None) -> bytes | None:
    return blob.read_bytes() if blob is not None and blob.exists() else None


def _imported(core: Any, blob: bytes, settings: Mapping[str, Any]) -> Any:
    """The compiled model of a blob; None where it is of another machine."""
    try:
        return core.import_model(blob, DEVICE, dict(settings))
    except RuntimeError:
        return None


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

    def __init__(self, models: Sequence[Any]) -> None:
        turns = itertools.cycle(models)
        self._pool: Pool[Any] = Pool(lambda: next(turns).create_infer_request())
        inputs, outputs = models[0].inputs, models[0].outputs
        self._inputs = {name: at for at, port in enumerate(inputs) for name in port.get_names()}
        self._outputs = [list(port.get_names()) for port in outputs]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
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
