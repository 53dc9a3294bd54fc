"""ONNX Runtime on NVIDIA GPUs, either with ONNX Runtime's own CUDA kernels or with TensorRT."""

# The stubs of onnxruntime leave its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.gpu.cards import OVERLAPPED_RUNS, card_names, missing_cuda
from slipstream.infer.engines.modules import missing
from slipstream.infer.engines.onnxruntime import CPU, Provider, Session
from slipstream.infer.engines.protocol import Executable, GraphEngine, Precision, Recipe
from slipstream.infer.engines.rounded import rounded_constants
from slipstream.infer.engines.standard import standard_graph
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.onnx_file import to_model

if TYPE_CHECKING:
    from slipstream.infer.engines.gpu.accelerator import Accelerator
    from slipstream.infer.engines.gpu.staged import DeviceCall

INSTALL = "pip install onnxruntime-gpu"
# TensorRT builds an engine for minutes; the folder keeps engines for the next load.
TENSORRT_CACHE = Path.home() / ".cache" / "slipstream" / "tensorrt"
TENSORRT_NAME, CUDA_NAME = "TensorrtExecutionProvider", "CUDAExecutionProvider"
RECORDS = {CUDA_NAME: "enable_cuda_graph", TENSORRT_NAME: "trt_cuda_graph_enable"}


@dataclass(frozen=True)
class OnnxRuntimeOnGpu(GraphEngine):
    """ONNX Runtime on one GPU, with inputs and outputs at fixed addresses of its memory.

    Args:
        name: Name of the engine in recipes and on the command line.
        providers: ONNX Runtime's names of the execution providers; the preferred provider comes
            first. An operator that none of them has runs on the CPU.
        settings: Settings of the preferred provider, for each precision that it supports.
        device: Device in PyTorch (default "cuda", the first GPU). Tests name the CPU.
    """

    name: str
    providers: tuple[str, ...]
    settings: Mapping[Precision, Mapping[str, str]]
    device: str = "cuda"

    overlapped_runs = OVERLAPPED_RUNS
    kind: Literal["cpu", "cuda"] = "cuda"

    def with_card(self, card: int) -> OnnxRuntimeOnGpu:
        """See `Engine`."""
        return replace(self, device=f"cuda:{card}")

    def available(self) -> str | None:
        """Return None if there are a GPU, PyTorch and ONNX Runtime for GPUs, else the reason.

        PyTorch makes the streams and the pinned memory, and its libraries of CUDA serve both.
        """
        reason = missing_cuda() or missing("onnxruntime", INSTALL)
        return reason or self._without_provider()

    def _without_provider(self) -> str | None:
        import onnxruntime

        if self.providers[0] in onnxruntime.get_available_providers():
            return None
        return f"the installed ONNX Runtime has no {self.providers[0]}; {INSTALL}"

    def precisions(self) -> tuple[Precision, ...]:
        """See `Engine`."""
        return tuple(self.settings)

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`. CUDA graphs record the run unless an operator runs on the CPU."""
        if recipe.precision not in self.settings:
            raise UnsupportedError(
                f"{self.name} has {', '.join(self.settings)}, not {recipe.precision}"
            )
        if self.device.startswith("cuda") and (reason := self.available()) is not None:
            raise UnsupportedError(reason)
        from slipstream.infer.engines.gpu.accelerator import Accelerator
        from slipstream.infer.engines.gpu.staged import StagedExecutable

        accelerator = Accelerator(self.device)
        stream = accelerator.stream()
        model = _model(graph, recipe)
        try:
            call = self._call(graph, model, recipe, (accelerator, stream), records=True)
        except UnsupportedError:
            call = self._call(graph, model, recipe, (accelerator, stream), records=False)
        return StagedExecutable(accelerator, call, stream, rounded_constants(graph, recipe))

    def _call(
        self,
        graph: Graph,
        model: bytes,
        recipe: Recipe,
        queue: tuple[Accelerator, Any],
        *,
        records: bool,
    ) -> DeviceCall:
        accelerator, stream = queue
        settings = dict(self.settings[recipe.precision])
        if not accelerator.is_host:
            settings |= _settings_on_card(self.providers[0], accelerator, stream, model)
            if records:
                settings[RECORDS[self.providers[0]]] = "1"
        providers = [(self.providers[0], settings)]
        providers += [(name, {"device_id": str(accelerator.card)}) for name in self.providers[1:]]
        session = Session(model, 1, _unique([*providers, CPU]))
        call = _bound(session, graph, accelerator)
        accelerator.warmed(call.launch, stream)
        return call


def _unique(providers: list[Provider]) -> list[Provider]:
    """Return the providers without repetitions."""
    return list({name: (name, settings) for name, settings in reversed(providers)}.values())[::-1]


def _settings_on_card(
    provider: str, accelerator: Accelerator, stream: Any, model: bytes
) -> dict[str, str]:
    """Return settings that name the card, the stream, and the folder of TensorRT's engines."""
    settings = {
        "device_id": str(accelerator.card),
        "user_compute_stream": str(stream.cuda_stream),
    }
    if provider != TENSORRT_NAME:
        return settings
    folder = tensorrt_folder(model, card_names()[accelerator.card])
    folder.mkdir(parents=True, exist_ok=True)
    return settings | {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(folder),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(folder),
    }


def tensorrt_folder(model: bytes, card: str) -> Path:
    """Return the folder for TensorRT's engines of a model, which fit one GPU and one version."""
    import onnxruntime

    digest = hashlib.sha256(model)
    digest.update(f"{card} {onnxruntime.__version__}".encode())
    return TENSORRT_CACHE / digest.hexdigest()[:24]


def _model(graph: Graph, recipe: Recipe) -> bytes:
    """Return the ONNX model of a recipe; in int8, bytes are signed and have no zero points.

    Raises:
        UnsupportedError: the model is too large for one file, or has no such form.
    """
    standard = standard_graph(graph, recipe, signed=True)
    try:
        model = to_model(standard)
        if recipe.precision == "fp16":
            from onnxruntime.transformers.float16 import convert_float_to_float16

            model = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
        return model.SerializeToString()
    except ValueError as error:  # protobuf has a limit of 2 GiB
        raise UnsupportedError(f"the graph does not fit one ONNX file: {error}") from error


def _bound(session: Session, graph: Graph, accelerator: Accelerator) -> DeviceCall:
    """Bind the inputs and outputs of a session to memory of the device."""
    import onnxruntime

    from slipstream.infer.engines.gpu.staged import DeviceCall

    binding: Any = session.inference.io_binding()
    tensors: dict[str, Any] = {}
    kind, card = ("cpu", 0) if accelerator.is_host else ("cuda", accelerator.card)
    read = {port.name for port in session.inference.get_inputs()}
    for names, bind in (
        ([name for name in graph.inputs if name in read], binding.bind_input),
        (graph.outputs, binding.bind_output),
    ):
        for name in names:
            value = graph.value(name)
            if value.fixed is None:
                raise UnsupportedError(f"the size of {name} is known only after a run")
            dtype = value.dtype or np.dtype(np.float32)
            tensor = tensors[name] = accelerator.zeros(dtype, value.fixed)
            bind(name, kind, card, dtype.type, value.fixed, tensor.data_ptr())
    options = onnxruntime.RunOptions()
    # The streams order the stages of a call, so the CPU need not wait for the GPU here.
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return DeviceCall(
        inputs={name: tensors[name] for name in graph.inputs if name in read},
        outputs={name: tensors[name] for name in graph.outputs},
        launch=lambda: session.run_bound(binding, options),
    )


CUDA = OnnxRuntimeOnGpu(
    name="onnxruntime-cuda",
    providers=(CUDA_NAME,),
    settings={"fp32": {"use_tf32": "0"}, "tf32": {"use_tf32": "1"}, "fp16": {"use_tf32": "1"}},
)
# There is no fp32, because TensorRT computes it as TF32 on recent GPUs.
TENSORRT = OnnxRuntimeOnGpu(
    name="tensorrt",
    providers=(TENSORRT_NAME, CUDA_NAME),
    settings={
        "tf32": {},
        "bf16": {"trt_bf16_enable": "1"},
        "fp16": {"trt_fp16_enable": "1"},
        "int8": {"trt_int8_enable": "1", "trt_fp16_enable": "1"},
    },
)
