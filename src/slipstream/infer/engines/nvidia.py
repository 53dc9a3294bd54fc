"""ONNX Runtime on GPUs of NVIDIA: by its own CUDA kernels, or by TensorRT."""

# The stubs of onnxruntime leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.onnxruntime import CPU, Session
from slipstream.infer.engines.protocol import Executable, Precision, Recipe
from slipstream.infer.engines.standard import onnx_bytes
from slipstream.infer.graph import Graph

INSTALL = "pip install onnxruntime-gpu"
DEVICES = Path("/proc/driver/nvidia/gpus")  # one entry for each that the driver has


@dataclass(frozen=True)
class OnnxRuntimeOnGpu:
    """The first GPU. Inputs and outputs are in the processor's memory, as those of every engine.

    Args:
        name: in recipes and on the command line.
        providers: ONNX Runtime's names of what may run operators there, the one wanted first.
        settings: of that one, for each precision that it has.
        cache: of that one too, where it keeps what it compiled: names of the setting that switches
            this on and of that of the folder; empty where it compiles nothing.
    """

    name: str
    providers: tuple[str, ...]
    settings: Mapping[Precision, Mapping[str, str]]
    cache: tuple[str, ...] = ()

    def available(self) -> str | None:
        """None, or what it lacks: a GPU, or a build of ONNX Runtime for it."""
        if not DEVICES.is_dir() or not any(DEVICES.iterdir()):
            return "there is no GPU of NVIDIA here"
        reason = missing("onnxruntime", INSTALL)
        if reason is not None:
            return reason
        import onnxruntime

        if self.providers[0] not in onnxruntime.get_available_providers():
            return f"this ONNX Runtime has no {self.providers[0]}; {INSTALL}"
        return None

    def precisions(self) -> tuple[Precision, ...]:
        """See `Engine`."""
        return tuple(self.settings)

    def prepare(self, graph: Graph, recipe: Recipe, threads: int, cache: Path | None) -> Executable:
        """See `Engine`. The processor runs single operators that the GPU has not; where nothing
        runs on the GPU, this raises UnsupportedError."""
        if recipe.precision not in self.settings:
            raise UnsupportedError(f"{self.name} has no {recipe.precision}")
        settings = dict(self.settings[recipe.precision])
        if cache is not None and self.cache:
            settings |= {self.cache[0]: "1", self.cache[1]: str(cache)}
        others = [(name, dict[str, str]()) for name in self.providers[1:]]
        providers = [(self.providers[0], settings), *others, CPU]
        return Session(onnx_bytes(graph, recipe), max(threads // recipe.streams, 1), providers)


CUDA = OnnxRuntimeOnGpu(
    name="onnxruntime-cuda",
    providers=("CUDAExecutionProvider",),
    settings={"fp32": {"use_tf32": "0"}},
)
# Its int8 has no zeros, which ours need.
TENSORRT = OnnxRuntimeOnGpu(
    name="tensorrt",
    providers=("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    settings={"fp32": {}, "bf16": {"trt_bf16_enable": "1"}},
    cache=("trt_engine_cache_enable", "trt_engine_cache_path"),
)
