"""ONNX Runtime on GPUs of NVIDIA: by its own CUDA kernels, or by TensorRT."""

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
    """The first GPU. Inputs and outputs are in the processor's memory, as those of every engine.

    Args:
        name: Name in recipes and on the command line.
        providers: ONNX Runtime's names of what may run operators there, the one wanted first.
        settings: of that one, for each precision that it has.
    """

    name: str
    providers: tuple[str, ...]
    settings: Mapping[Precision, Mapping[str, str]]

    def available(self) -> str | None:
        """Return None, or the missing requirement: a GPU, or a build of ONNX Runtime for it."""
        reason = missing_gpu() or missing("onnxruntime", INSTALL)
        if reason is not None:
            return reason
        import onnxruntime

        if self.providers[0] not in onnxruntime.get_available_providers():
            return f"this ONNX Runtime has no {self.providers[0]}; {INSTALL}"
        return None

    def precisions(self) -> tuple[Precision, ...]:
        """See `Engine`."""
        return tuple(self.settings)

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`. Operators that the first of the providers has not are run by the others,
        the processor last."""
        if recipe.precision not in self.settings:
            raise UnsupportedError(f"{self.name} has no {recipe.precision}")
        settings = dict(self.settings[recipe.precision])
        others = [(name, dict[str, str]()) for name in self.providers[1:]]
        providers = [(self.providers[0], settings), *others, CPU]
        return Session(onnx_bytes(graph, recipe), max(threads // recipe.streams, 1), providers)


CUDA = OnnxRuntimeOnGpu(
    name="onnxruntime-cuda",
    providers=("CUDAExecutionProvider",),
    settings={"fp32": {"use_tf32": "0"}},
)
# Its int8 has no zeros, which ours need; its float32 is TF32 on recent GPUs.
TENSORRT = OnnxRuntimeOnGpu(
    name="tensorrt",
    providers=("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    settings={"bf16": {"trt_bf16_enable": "1"}, "fp16": {"trt_fp16_enable": "1"}},
)
