"""ONNX Runtime on NVIDIA GPUs, either with ONNX Runtime's own CUDA kernels or with TensorRT."""

# The stubs of onnxruntime leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.modules import missing, missing_gpu
from slipstream.infer.engines.onnxruntime import CPU, Session
from slipstream.infer.engines.protocol import Executable, GraphEngine, Precision, Recipe
from slipstream.infer.engines.standard import onnx_bytes
from slipstream.infer.graph.graph import Graph

INSTALL = "pip install onnxruntime-gpu"


@dataclass(frozen=True)
class OnnxRuntimeOnGpu(GraphEngine):
    """ONNX Runtime on the first GPU; inputs and outputs are in host memory, as for every engine.

    Args:
        name: Name of the engine in recipes and on the command line.
        providers: ONNX Runtime's names of the execution providers; the preferred provider comes
            first.
        settings: Settings of the preferred provider, for each precision that it supports.
    """

    name: str
    providers: tuple[str, ...]
    settings: Mapping[Precision, Mapping[str, str]]

    def available(self) -> str | None:
        """Return None if there are a GPU and ONNX Runtime for GPUs, else the reason."""
        reason = missing_gpu() or missing("onnxruntime", INSTALL)
        if reason is not None:
            return reason
        import onnxruntime

        if self.providers[0] not in onnxruntime.get_available_providers():
            return f"the installed ONNX Runtime has no {self.providers[0]}; {INSTALL}"
        return None

    def precisions(self) -> tuple[Precision, ...]:
        """See `Engine`."""
        return tuple(self.settings)

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`. An operator runs on the first provider that has it, or else on the CPU."""
        if recipe.precision not in self.settings:
            raise UnsupportedError(
                f"{self.name} has {', '.join(self.settings)}, not {recipe.precision}"
            )
        settings = dict(self.settings[recipe.precision])
        others = [(name, dict[str, str]()) for name in self.providers[1:]]
        providers = [(self.providers[0], settings), *others, CPU]
        return Session(onnx_bytes(graph, recipe), max(threads // recipe.streams, 1), providers)


CUDA = OnnxRuntimeOnGpu(
    name="onnxruntime-cuda",
    providers=("CUDAExecutionProvider",),
    settings={"fp32": {"use_tf32": "0"}},
)
# int8 is left out, because TensorRT's int8 has no zero points, which our ranges need. fp32 is left
# out, because TensorRT computes it as TF32 on recent GPUs.
TENSORRT = OnnxRuntimeOnGpu(
    name="tensorrt",
    providers=("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    settings={"bf16": {"trt_bf16_enable": "1"}, "fp16": {"trt_fp16_enable": "1"}},
)
