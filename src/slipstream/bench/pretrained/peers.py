"""The original models, which ONNX Runtime and OpenVINO run without our compiler."""

# The type stubs of these packages leave most types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from pathlib import Path
from typing import Any

from slipstream.bench.infer.calls import of_openvino
from slipstream.bench.pretrained.case import Inputs, Module, Run
from slipstream.infer.engines.openvino import openvino_core
from slipstream.infer.graph import onnx_file
from slipstream.infer.importers.torch_modules import export


def onnx_of(model: Path | Module) -> bytes:
    """Return the bytes of a model's ONNX file; a network is exported by PyTorch first."""
    if isinstance(model, Path):
        return model.read_bytes()
    exported = export(model.network, model.example, {})
    return onnx_file.to_model(exported.graph).SerializeToString()


def openvino(model: bytes, example: Inputs, threads: int) -> Run:
    """Compile a model with OpenVINO in float32, and return a function that runs it.

    The function accepts only inputs with the shapes of `example`.

    Raises:
        RuntimeError: OpenVINO cannot run the model.
    """
    read: Any = openvino_core().read_model(model)
    read.reshape({name: list(array.shape) for name, array in example.items()})
    run = of_openvino(read, threads, "f32")
    run(example)
    return run
