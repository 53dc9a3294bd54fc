"""ONNX Runtime on the CPU."""

# The stubs of onnxruntime leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.protocol import Executable, Precision, Recipe, Small
from slipstream.infer.engines.rounded import rounded_constants
from slipstream.infer.engines.standard import standard_graph
from slipstream.infer.graph import Array, Graph
from slipstream.infer.onnx_file import BFLOAT16, split_model

FATAL = 4  # ONNX Runtime's severity: what it has to say arrives as exceptions
ALL_CORES = 0  # as many threads as ONNX Runtime thinks right

Provider: TypeAlias = "tuple[str, dict[str, str]]"  # what runs a graph, and its settings
CPU: Provider = ("CPUExecutionProvider", {})


class OnnxRuntime:
    """Runs ONNX models; bf16 has no kernels on CPUs."""

    name = "onnxruntime"

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
        session = graph_session(standard_graph(graph, recipe), threads, optimise=True)
        session.small = rounded_constants(graph, recipe)
        return session


def graph_session(graph: Graph, threads: int, *, optimise: bool = False) -> Session:
    """A graph of ONNX's own operators, by default as `plain_session` runs it; its large constants
    are not copied."""
    model, large = split_model(graph)
    return Session(model.SerializeToString(), threads, optimise=optimise, large=large)


def plain_session(model: bytes, threads: int) -> Executable:
    """The model as it is written, without the engine's own optimisations: for reference."""
    return Session(model, threads, optimise=False)


class Session:
    """A session is safe to run from several threads as it is.

    Args:
        model: in ONNX's own operators.
        threads: of one run.
        providers: that may run its operators, the one that is wanted first.
        optimise: False: as it is written.
        large: constants that the model says are elsewhere; they are not copied.
    """

    def __init__(
        self,
        model: bytes,
        threads: int,
        providers: Sequence[Provider] = (CPU,),
        *,
        optimise: bool = True,
        large: Mapping[str, Array] | None = None,
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
        self.small: Mapping[str, Small] = {}  # see `Rounding`
        try:
            if self._large:
                values = [_value(array) for array in self._large.values()]
                options.add_external_initializers(list(self._large), values)
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
        given = {name: array for name, array in inputs.items() if name in self._inputs}
        try:
            found = self._session.run(self._names, given)
        except Exception as error:  # an index beyond its table, a size that does not fit
            raise UsageError(f"the model cannot be run on this input: {error}") from error
        return dict(zip(self._names, found, strict=True))

    def close(self) -> None:
        self._session = None
        self._large = {}


def _value(array: Array) -> Any:
    """A constant as ONNX Runtime takes it, in the same memory."""
    from onnxruntime import OrtValue

    if array.dtype == BFLOAT16:  # no dtype of NumPy's own
        number = int(TensorProto.BFLOAT16)
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), number)
    return OrtValue.ortvalue_from_numpy(array)
