"""Contenders of the benchmark on a GPU: PyTorch and ONNX Runtime as their users run them, and ours.

A contender is a function that maps inputs in host memory to outputs in host memory.
"""

# The type stubs of these packages leave most types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.infer.models import find_model
from slipstream.errors import UnsupportedError
from slipstream.infer.engines import ENGINES, Engine, Recipe
from slipstream.infer.engines.gpu.inductor import DTYPES, GraphInductor
from slipstream.infer.engines.modules import missing

if TYPE_CHECKING:
    from slipstream.infer.graph.graph import Graph

Run: TypeAlias = "Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]"

# Modes of torch.compile by the name of the contender; None stands for no compilation.
TORCH_MODES: dict[str, str | None] = {
    "eager": None,
    "compile": "default",
    "compile-graphs": "reduce-overhead",
    "compile-autotune": "max-autotune",
}
PROVIDERS = {"ort-cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
PEERS = (*TORCH_MODES, *PROVIDERS)
PRECISIONS = tuple(DTYPES)
OURS = "ours-"  # prefix of the names of Slipstream's engines; a peer may have the same engine


@dataclass(frozen=True)
class CardModel:
    """A model with inputs of some rows.

    Args:
        name: Name of the model.
        batch: Number of rows of the inputs.
        device: Device of all contenders.
        precision: Precision of all contenders.
        network: Network on the CPU in float32.
        outputs: Names of the network's outputs.
        inputs: Inputs of a call, by name.
        expected: Outputs of the network in float32 on the CPU, by name.
    """

    name: str
    batch: int
    device: str
    precision: str
    network: Any
    outputs: tuple[str, ...]
    inputs: Mapping[str, NDArray[Any]]
    expected: Mapping[str, NDArray[Any]]

    @staticmethod
    def of(name: str, batch: int, device: str, precision: str) -> CardModel:
        """Build a model, and compute its outputs in float32; each row has a seed of its own."""
        import torch

        model = find_model(name)
        network = model.build().eval()
        samples = [model.inputs(seed) for seed in range(batch)]
        inputs = {key: np.concatenate([sample[key] for sample in samples]) for key in samples[0]}
        with torch.inference_mode():
            results = network(*map(torch.from_numpy, inputs.values()))
        tensors = results if isinstance(results, tuple) else (results,)
        arrays = (tensor.numpy() for tensor in tensors)
        expected = dict(zip(model.outputs, arrays, strict=True))
        return CardModel(name, batch, device, precision, network, model.outputs, inputs, expected)

    @cached_property
    def graph(self) -> Graph:
        """The graph of the network after Slipstream's rewrites."""
        from slipstream.infer.rewrites import optimise

        return optimise(self.imported)[0]

    @cached_property
    def imported(self) -> Graph:
        """The graph of the network."""
        from slipstream.infer.importers import load_model

        return load_model(self.network, tuple(self.inputs.values())).graph


def load_peer(name: str, model: CardModel) -> Run:
    """Load a competing contender.

    Raises:
        UnsupportedError: a package of the contender is missing, or it cannot run the model.
    """
    return _on_pytorch(name, model) if name in TORCH_MODES else _on_onnxruntime(name, model)


def _on_pytorch(name: str, model: CardModel) -> Run:
    """Load a network into PyTorch, with its fast settings: channels last, and tried algorithms."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = model.precision != "fp32"
    torch.set_float32_matmul_precision("highest" if model.precision == "fp32" else "high")
    dtype = getattr(torch, DTYPES[model.precision])  # pyright: ignore[reportArgumentType]
    network: Any = copy.deepcopy(model.network).to(device=model.device, dtype=dtype)
    is_image = any(array.ndim == 4 for array in model.inputs.values())
    network = network.to(memory_format=torch.channels_last) if is_image else network
    mode = TORCH_MODES[name]
    call = network if mode is None else torch.compile(network, mode=mode)

    def placed(array: NDArray[Any]) -> Any:
        tensor = torch.from_numpy(array).to(model.device)
        tensor = tensor.to(dtype) if tensor.is_floating_point() else tensor
        return tensor.to(memory_format=torch.channels_last) if array.ndim == 4 else tensor

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.no_grad():
            results = call(*map(placed, inputs.values()))
            tensors = results if isinstance(results, tuple) else (results,)
            arrays = [tensor.float().cpu().numpy() for tensor in tensors]
        return dict(zip(model.outputs, arrays, strict=True))

    return run


def _on_onnxruntime(name: str, model: CardModel) -> Run:
    """Load a network into ONNX Runtime, which copies the inputs and outputs itself."""
    reason = missing("onnxruntime", "pip install onnxruntime-gpu")
    if reason is not None:
        raise UnsupportedError(reason)
    import onnxruntime

    if PROVIDERS[name] not in onnxruntime.get_available_providers():
        raise UnsupportedError(f"the installed ONNX Runtime has no {PROVIDERS[name]}")
    from slipstream.infer.graph.onnx_file import to_model

    stored = to_model(model.imported)
    settings = {"device_id": model.device.partition(":")[2] or "0"}
    if name == "tensorrt":
        settings |= {"trt_fp16_enable": str(int(model.precision == "fp16"))}
    else:
        settings |= {"use_tf32": str(int(model.precision != "fp32"))}
        if model.precision == "fp16":
            from onnxruntime.transformers.float16 import convert_float_to_float16

            stored = convert_float_to_float16(stored, keep_io_types=True)
    session: Any = onnxruntime.InferenceSession(
        stored.SerializeToString(), providers=[(PROVIDERS[name], settings)]
    )
    names = list(model.imported.inputs)

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        results = session.run(None, dict(zip(names, inputs.values(), strict=True)))
        return dict(zip(model.outputs, results, strict=True))

    return run


def ours(device: str, precision: str) -> list[str]:
    """Return contenders for Slipstream's engines that can run on a device in a precision."""
    return [
        OURS + name for name, engine in _engines(device).items() if precision in engine.precisions()
    ]


def load_ours(name: str, model: CardModel) -> Run:
    """Load one of Slipstream's engines with the rewritten graph."""
    engine = _engines(model.device)[name.removeprefix(OURS)]
    recipe = Recipe.model_validate({"engine": engine.name, "precision": model.precision})
    executable = engine.prepare(model.graph, recipe, 1)
    names = list(model.graph.inputs)

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        outputs = executable.run(dict(zip(names, inputs.values(), strict=True)))
        return dict(zip(model.outputs, outputs.values(), strict=True))

    return run


def _engines(device: str) -> dict[str, Engine]:
    """Return the engines for a device by name; on the CPU, the one for graphs runs there."""
    if device == "cpu":
        engine = ENGINES["inductor-cuda"]
        assert isinstance(engine, GraphInductor)
        return {engine.name: replace(engine, device="cpu")}
    card = int(device.partition(":")[2] or 0)
    return {
        name: engine.with_card(card)
        for name, engine in ENGINES.items()
        if engine.kind == "cuda" and engine.available() is None
    }
