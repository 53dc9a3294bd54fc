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

import numpy as np
from onnx import TensorProto

from slipstream.errors import UnsupportedError, UsageError
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
from slipstream.infer.graph.onnx_file import BFLOAT16, bare_graph, split_model
from slipstream.infer.machine import LARGE_BYTES
from slipstream.infer.package.stored_graph import graph_files

MODEL = "model.onnx"
FATAL = 4  # ONNX Runtime's severity: what it has to say arrives as exceptions
ALL_CORES = 0  # as many threads as ONNX Runtime thinks right

Provider: TypeAlias = "tuple[str, dict[str, str]]"  # what runs a graph, and its settings
CPU: Provider = ("CPUExecutionProvider", {})


@dataclass(frozen=True)
class OnnxRuntime(GraphEngine):
    """Runs ONNX models; bf16 has no kernels on CPUs.

    Args:
        name: name in recipes and on the command line.
        file_bytes: size of a graph's constants from which they are written to a file in the folder
            for temporary ones (`TMPDIR`) and mapped, default 1 GiB: others are copied once more
            while a session is made.
    """

    name: str = "onnxruntime"
    file_bytes: int = LARGE_BYTES

    def with_large_bytes(self, large_bytes: int) -> OnnxRuntime:
        """See `Engine`."""
        return replace(self, file_bytes=large_bytes)

    def available(self) -> str | None:
        """None, or that it is not installed."""
        return missing("onnxruntime")

    def precisions(self) -> tuple[Precision, ...]:
        """What its CPU kernels know."""
        return ("fp32", "int8", "int8-dynamic", "int8-weights")

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`. Nothing is kept: what it does to a graph takes less than reading it."""
        if recipe.rest != "fp32":
            raise UnsupportedError(f"ONNX Runtime has no {recipe.rest} beside bytes on CPUs")
        threads = max(threads // recipe.streams, 1)
        made = standard_graph(graph, recipe)
        if sum(array.nbytes for array in made.constants.values()) >= self.file_bytes:
            session = _session_of_file(made, threads)
        else:
            session = graph_session(made, threads, optimise=True)
        session.small = rounded_constants(graph, recipe)
        return session


def graph_session(graph: Graph, threads: int, *, optimise: bool = False) -> Session:
    """A graph of ONNX's own operators, by default as `plain_session` runs it; its large constants
    are not copied, but as the engine's optimisations want them. Without these, matrices are inputs
    that every run is given."""
    given: dict[str, Array] = {}
    if not optimise:
        graph, given = bare_graph(graph, lambda array: array.ndim > 1 and array.dtype.kind == "f")
    model, large = split_model(graph)
    data = model.SerializeToString()
    return Session(data, threads, optimise=optimise, large=large, given=given)


def _session_of_file(graph: Graph, threads: int) -> Session:
    try:
        with tempfile.TemporaryDirectory(prefix="slipstream-onnx-") as folder:
            for name, pieces in graph_files(graph, MODEL).items():
                with Path(folder, name).open("wb") as file:
                    file.writelines(pieces)
            return Session(str(Path(folder, MODEL)), threads)
    except OSError as error:
        raise UnsupportedError(
            "the weights of a large model are written to a temporary file for ONNX Runtime, and"
            f" that fails: {error}; let TMPDIR be a folder with room for them"
        ) from error


def plain_session(model: bytes, threads: int) -> Executable:
    """The model as it is written, without the engine's own optimisations: for reference."""
    return Session(model, threads, optimise=False)


class Session(UnprofiledExecutable):
    """A session is safe to run from several threads as it is.

    Args:
        model: in ONNX's own operators; bytes, or the path of a file.
        threads: of one run.
        providers: that may run its operators, the one that is wanted first.
        optimise: False: as it is written.
        large: constants that the model says are elsewhere; they are not copied.
        given: inputs that are the same in every run.
    """

    def __init__(
        self,
        model: bytes | str,
        threads: int,
        providers: Sequence[Provider] = (CPU,),
        *,
        optimise: bool = True,
        large: Mapping[str, Array] | None = None,
        given: Mapping[str, Array] | None = None,
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = FATAL
        # Its threads would spin on while somebody else is measured.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
        )
        self._large = large or {}  # the session reads them where they are
        self._given = given or {}
        self.small: Mapping[str, Small] = {}  # see `Executable`
        try:
            if self._large:
                values = [_value(array) for array in self._large.values()]
                options.add_external_initializers(list(self._large), values)
                # Without this, what it is given for the graph is copied for the session.
                for name, value in zip(self._large, values, strict=True):
                    options.add_initializer(name, value)
            self._session: Any = onnxruntime.InferenceSession(
                model, options, providers=list(providers)
            )
        except Exception as error:  # its exceptions have no base of their own
            raise UnsupportedError(f"ONNX Runtime cannot load the graph: {error}") from error
        wanted = providers[0][0]
        if wanted not in self._session.get_providers():  # it only warns
            raise UnsupportedError(
                f"ONNX Runtime cannot use {wanted} here: its libraries do not load"
            )
        self._names = [output.name for output in self._session.get_outputs()]
        # Inputs that no node reads do not exist for it.
        self._inputs = {value.name for value in self._session.get_inputs()}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = {**inputs, **self._given} if self._given else inputs
        if given.keys() != self._inputs:
            given = {name: array for name, array in given.items() if name in self._inputs}
        try:
            found = self._session.run(self._names, given)
        except Exception as error:  # an index beyond its table, a size that does not fit
            raise UsageError(f"the model cannot be run on this input: {error}") from error
        return dict(zip(self._names, found, strict=True))

    def close(self) -> None:
        self._session = None
        self._large = self._given = {}


def _value(array: Array) -> Any:
    """A constant as ONNX Runtime takes it, in the same memory."""
    from onnxruntime import OrtValue

    if array.dtype == BFLOAT16:  # no dtype of NumPy's own
        number = int(TensorProto.BFLOAT16)
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), number)
    return OrtValue.ortvalue_from_numpy(array)
