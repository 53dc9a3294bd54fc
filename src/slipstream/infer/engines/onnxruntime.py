"""ONNX Runtime on the CPU."""

# The stubs of onnxruntime leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.engines.added_values import (
    ONNXRUNTIME_TYPES,
    array_of_ort_value,
    ort_value,
)
from slipstream.infer.engines.modules import missing
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
from slipstream.infer.graph.onnx_file import bare_graph, split_model
from slipstream.infer.machine import LARGE_BYTES
from slipstream.infer.package.stored_graph import graph_files

MODEL = "model.onnx"
FATAL = 4  # log level at which errors are only raised as exceptions, not logged
ALL_CORES = 0  # ONNX Runtime chooses the number of threads

Provider: TypeAlias = "tuple[str, dict[str, str]]"  # name and settings of an execution provider
CPU: Provider = ("CPUExecutionProvider", {})


@dataclass(frozen=True)
class OnnxRuntime(GraphEngine):
    """ONNX Runtime with its kernels for CPUs, which have no bf16.

    Args:
        name: Name of the engine in recipes and on the command line.
        file_bytes: Threshold in bytes for the total size of a graph's constants (default 1 GiB). If
            a graph's constants have at least `file_bytes` together, they are written to a temporary
            file (in `TMPDIR`) and mapped into memory. Smaller constants are copied once, when a
            session is made.
    """

    name: str = "onnxruntime"
    file_bytes: int = LARGE_BYTES

    def with_large_bytes(self, large_bytes: int) -> OnnxRuntime:
        """See `Engine`."""
        return replace(self, file_bytes=large_bytes)

    def available(self) -> str | None:
        """Return None if ONNX Runtime is installed, else a message that it is not."""
        return missing("onnxruntime")

    def precisions(self) -> tuple[Precision, ...]:
        """Return the precisions of ONNX Runtime's kernels for CPUs."""
        return ("fp32", "int8", "int8-dynamic", "int8-weights")

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`.

        The optimised graph is not cached, because optimising it is faster than reading it from a
        file.
        """
        if recipe.rest != "fp32":
            raise UnsupportedError(
                f"ONNX Runtime mixes int8 with fp32 on CPUs, not with {recipe.rest}"
            )
        threads = max(threads // recipe.streams, 1)
        standard = standard_graph(graph, recipe)
        if sum(array.nbytes for array in standard.constants.values()) >= self.file_bytes:
            session = _session_of_file(standard, threads)
        else:
            session = graph_session(standard, threads, optimise=True)
        session.small = rounded_constants(graph, recipe)
        return session


def graph_session(graph: Graph, threads: int, *, optimise: bool = False) -> Session:
    """Return a session of a graph of standard ONNX operators.

    ONNX Runtime copies large constants only if it optimises the graph. It may also convert
    constants, but not inputs. Without optimisations, every run therefore passes the large matrices
    as inputs.

    Args:
        graph: Graph to run.
        threads: Number of threads of one run.
        optimise: Whether the engine may optimise the graph (default False: it runs as written).
    """
    fixed_inputs: dict[str, Array] = {}
    if not optimise:
        graph, fixed_inputs = bare_graph(
            graph, lambda array: array.ndim > 1 and array.dtype.kind == "f"
        )
    model, large = split_model(graph)
    data = model.SerializeToString()
    return Session(data, threads, optimise=optimise, large=large, fixed_inputs=fixed_inputs)


def _session_of_file(graph: Graph, threads: int) -> Session:
    try:
        with tempfile.TemporaryDirectory(prefix="slipstream-onnx-") as folder:
            for name, pieces in graph_files(graph, MODEL).items():
                with Path(folder, name).open("wb") as file:
                    file.writelines(pieces)
            return Session(str(Path(folder, MODEL)), threads)
    except OSError as error:
        raise UnsupportedError(
            "ONNX Runtime needs the weights of a large model in a temporary file, and writing it"
            f" failed: {error}; set TMPDIR to a folder with enough space"
        ) from error


def plain_session(model: bytes, threads: int) -> Executable:
    """Return a session that runs the model as written, without optimisations."""
    return Session(model, threads, optimise=False)


class Session(UnprofiledExecutable):
    """A session of ONNX Runtime. Any number of threads may call a session at the same time.

    Args:
        model: Model in standard ONNX operators: its bytes, or the path of a file.
        threads: Number of threads of one run.
        providers: Execution providers; the preferred provider comes first (default: the CPU).
        optimise: Whether the engine may optimise the graph (default True).
        large: Arrays of the constants that the model refers to but does not contain, by name
            (default none). The session does not copy the arrays in `large`.
        fixed_inputs: Arrays of inputs that are the same in every run, by name (default none).
    """

    def __init__(
        self,
        model: bytes | str,
        threads: int,
        providers: Sequence[Provider] = (CPU,),
        *,
        optimise: bool = True,
        large: Mapping[str, Array] | None = None,
        fixed_inputs: Mapping[str, Array] | None = None,
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = FATAL
        # Otherwise its threads keep spinning after a run and disturb measurements of other engines.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
        )
        self._large = large or {}  # the session reads this memory
        self._fixed_inputs = fixed_inputs or {}
        self.small: Mapping[str, Small] = {}  # see `Executable`
        try:
            if self._large:
                values = [ort_value(array) for array in self._large.values()]
                options.add_external_initializers(list(self._large), values)
                # Without this, the session copies the initializers of the graph.
                for name, value in zip(self._large, values, strict=True):
                    options.add_initializer(name, value)
            self._session: Any = onnxruntime.InferenceSession(
                model, options, providers=list(providers)
            )
        except Exception as error:  # its exceptions have no common base class
            raise UnsupportedError(f"ONNX Runtime cannot load the graph: {error}") from error
        preferred = providers[0][0]
        if preferred not in self._session.get_providers():  # ONNX Runtime only warns
            raise UnsupportedError(
                f"ONNX Runtime cannot use {preferred} here: its libraries do not load"
            )
        self._names = [output.name for output in self._session.get_outputs()]
        # A session drops inputs that no node reads.
        self._inputs = {value.name for value in self._session.get_inputs()}
        ports = (*self._session.get_inputs(), *self._session.get_outputs())
        self._has_added_dtypes = any(port.type in ONNXRUNTIME_TYPES for port in ports)

    @property
    def inference(self) -> Any:
        """The session of ONNX Runtime."""
        return self._session

    def run_bound(self, binding: Any, options: Any) -> None:
        """Run with the inputs and outputs at the addresses of a binding."""
        try:
            self._session.run_with_iobinding(binding, options)
        except Exception as error:  # its exceptions have no common base class
            raise UnsupportedError(f"ONNX Runtime cannot run the graph: {error}") from error

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        feed = {**inputs, **self._fixed_inputs} if self._fixed_inputs else inputs
        if feed.keys() != self._inputs:
            feed = {name: array for name, array in feed.items() if name in self._inputs}
        try:
            arrays = self._run(feed)
        except Exception as error:  # for example an index beyond its table
            raise UsageError(f"the model cannot be run on this input: {error}") from error
        return dict(zip(self._names, arrays, strict=True))

    def _run(self, feed: Mapping[str, Array]) -> Sequence[Array]:
        if not self._has_added_dtypes:
            return self._session.run(self._names, feed)
        values = {name: ort_value(array) for name, array in feed.items()}
        outputs = self._session.run_with_ort_values(self._names, values)
        return [array_of_ort_value(value) for value in outputs]

    def close(self) -> None:
        self._session = None
        self._large = self._fixed_inputs = {}
