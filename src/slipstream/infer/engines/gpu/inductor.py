"""Graphs compiled by PyTorch's Inductor for a GPU, and recorded in a CUDA graph."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.compiled_module import CompiledModule
from slipstream.infer.engines.gpu.cards import OVERLAPPED_RUNS, missing_cuda
from slipstream.infer.engines.protocol import Executable, GraphEngine, Precision, Recipe
from slipstream.infer.engines.rounded import rounded_constants
from slipstream.infer.graph.graph import Graph

if TYPE_CHECKING:
    import torch

    from slipstream.infer.engines.gpu.accelerator import Accelerator
    from slipstream.infer.engines.gpu.staged import DeviceCall

DTYPES: dict[Precision, str] = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
}


@dataclass(frozen=True)
class GraphInductor(GraphEngine):
    """Inductor on a GPU, for graphs that went through Slipstream's rewrites.

    A package stores the graph, and every load compiles it. Inductor keeps compiled kernels in a
    folder of its own (TORCHINDUCTOR_CACHE_DIR), so later loads on the same machine are quicker.

    Args:
        name: Name of the engine in recipes and on the command line.
        device: Device in PyTorch. Tests name the CPU or a device whose streams are threads.
        autotunes: Whether Inductor measures several kernels for each product (default False). It
            takes minutes.
    """

    name: str = "inductor-cuda"
    device: str = "cuda"
    autotunes: bool = False

    runs_imported = False
    overlapped_runs = OVERLAPPED_RUNS
    kind: Literal["cpu", "cuda"] = "cuda"

    def with_card(self, card: int) -> GraphInductor:
        """See `Engine`."""
        return replace(self, device=f"cuda:{card}")

    def available(self) -> str | None:
        """Return None if PyTorch can use a GPU here, else the reason and a remedy."""
        return missing_cuda()

    def precisions(self) -> tuple[Precision, ...]:
        """Return the floating-point precisions; PyTorch has no int8 convolutions on GPUs."""
        return tuple(DTYPES)

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`. Compiling takes about a minute; `threads` has no effect."""
        del threads
        if recipe.precision not in DTYPES:
            raise UnsupportedError(f"{self.name} has {', '.join(DTYPES)}, not {recipe.precision}")
        if self.device.startswith("cuda") and (reason := self.available()) is not None:
            raise UnsupportedError(reason)
        from slipstream.infer.engines.gpu.accelerator import Accelerator
        from slipstream.infer.engines.gpu.staged import StagedExecutable

        accelerator = Accelerator(self.device)
        stream = accelerator.stream()
        call = _compiled(graph, recipe, accelerator, stream, autotunes=self.autotunes)
        return StagedExecutable(accelerator, call, stream, rounded_constants(graph, recipe))


def _compiled(
    graph: Graph, recipe: Recipe, accelerator: Accelerator, stream: Any, *, autotunes: bool
) -> DeviceCall:
    """Compile a graph, and record a call of it with inputs and outputs at fixed addresses."""
    import torch

    from slipstream.infer.engines.gpu.staged import DeviceCall
    from slipstream.infer.engines.gpu.torch_graph import torch_module

    module = torch_module(graph, getattr(torch, DTYPES[recipe.precision])).to(accelerator.device)
    inputs = {
        name: accelerator.zeros(value.dtype or np.dtype(np.float32), value.fixed or ())
        for name, value in graph.inputs.items()
    }
    sources = list(inputs.values())
    numbers = "tf32" if recipe.precision == "tf32" else "ieee"
    compiled = CompiledModule(module) if accelerator.compiles else module
    try:
        with product_settings(numbers, autotunes=autotunes):
            call, outputs = _first_call(compiled, sources, graph.outputs, accelerator, stream)
            launch = accelerator.recorded(call, stream)
    except Exception:
        _release(compiled)
        raise
    # A CUDA graph keeps the settings with which it was recorded.
    is_recorded = launch is not call
    return DeviceCall(
        inputs=inputs,
        outputs=outputs,
        launch=launch,
        context=nullcontext if is_recorded else partial(product_settings, numbers, autotunes=False),
        release=partial(_release, compiled),
    )


def _first_call(
    compiled: Callable[..., Any],
    sources: Sequence[torch.Tensor],
    names: Sequence[str],
    accelerator: Accelerator,
    stream: Any,
) -> tuple[Callable[[], None], dict[str, torch.Tensor]]:
    """Compile by a first call; return a function that repeats it, and the outputs it writes."""
    try:
        with accelerator.current(), accelerator.on(stream):
            results = compiled(*sources)
            outputs = {
                name: result.new_empty(result.shape)
                for name, result in zip(names, results, strict=True)
            }
    except Exception as error:  # from Inductor, from a compiler or from an operator
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnsupportedError(f"PyTorch cannot compile the graph: {first}") from error

    def call() -> None:
        for target, result in zip(outputs.values(), compiled(*sources), strict=True):
            target.copy_(result)

    return call, outputs


def _release(compiled: Callable[..., Any]) -> None:
    """Release the weights of a module; a module that was not compiled goes with its last user.

    A CUDA graph reads the weights at their addresses, so they must live as long as the graph.
    """
    if isinstance(compiled, CompiledModule):
        compiled.close()


@contextmanager
def product_settings(numbers: Literal["tf32", "ieee"], *, autotunes: bool) -> Generator[None]:
    """Set how PyTorch computes products: their precision, and the search for fast algorithms."""
    import torch
    import torch._inductor.config as config

    precision = torch.get_float32_matmul_precision()
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(config.patch(freezing=True, max_autotune=autotunes))
        stack.enter_context(
            torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=numbers == "tf32")
        )
        stack.callback(torch.set_float32_matmul_precision, precision)
        torch.set_float32_matmul_precision("high" if numbers == "tf32" else "highest")
        yield
