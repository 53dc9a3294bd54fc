"""PyTorch's Inductor on the CPU, which runs the module that a graph was imported from."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.compiled_module import CompiledModule
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.protocol import (
    Executable,
    GraphEngine,
    Precision,
    Recipe,
    Small,
    UnprofiledExecutable,
)
from slipstream.infer.graph.graph import Array, Graph


@dataclass(frozen=True)
class Inductor(GraphEngine):
    """PyTorch's Inductor, for comparison only: a package cannot store the code that it generates.

    Args:
        name: Name of the engine in recipes and on the command line.
        module: torch.nn.Module that takes the graph's inputs, in the graph's order, and returns the
            graph's outputs; None if the model is not from PyTorch.
    """

    name: str = "inductor"
    module: Any = None

    is_packable = False
    runs_rewritten = False
    runs_module = True

    def with_module(self, module: Any) -> Inductor:
        """See `Engine`."""
        return replace(self, module=module)

    def available(self) -> str | None:
        """Return None if torch and a module are there, else the reason."""
        reason = missing("torch", "pip install torch")
        if reason is None and self.module is None:
            return "Inductor compiles PyTorch modules only"
        return reason

    def precisions(self) -> tuple[Precision, ...]:
        """Return fp32, the only precision in which Inductor is measured."""
        return ("fp32",)

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`. Compiling takes about a minute.

        The PyTorch module is compiled; only the names and shapes of the graph are used.
        """
        reason = self.available()
        if reason is not None:
            raise UnsupportedError(reason)
        if recipe.rewrites:
            raise UnsupportedError("Inductor runs the module itself, not a rewritten graph")
        return _Module(self.module, graph, threads)


class _Module(UnprofiledExecutable):
    """A compiled module. Only one call runs at a time, because torch has a single thread pool."""

    def __init__(self, module: Any, graph: Graph, threads: int) -> None:
        import torch._inductor.config as config

        self.small: Mapping[str, Small] = {}  # see `Executable`
        self._inputs, self._outputs = list(graph.inputs), list(graph.outputs)
        self._threads = threads
        self._lock = threading.Lock()
        self._frozen = config.patch(freezing=True)
        self._call = CompiledModule(module.eval())
        sample = {
            name: np.zeros(value.fixed or (), value.dtype) for name, value in graph.inputs.items()
        }
        try:
            with self._frozen:
                self.run(sample)
        except Exception as error:  # from Inductor, from the C++ compiler or from the module
            self.close()
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise UnsupportedError(f"Inductor cannot compile the module: {first}") from error

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        with self._lock, torch.no_grad():
            torch.set_num_threads(self._threads)
            results = self._call(*(torch.from_numpy(inputs[name]) for name in self._inputs))
            tensors = results if isinstance(results, (tuple, list)) else (results,)
            arrays = [tensor.numpy().copy() for tensor in tensors]
        return dict(zip(self._outputs, arrays, strict=True))

    def close(self) -> None:
        self._call.close()
