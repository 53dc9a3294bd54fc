"""The uncompiled originals, as their packages' users run them."""

# The stubs of these packages leave most of their types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.bench.pretrained.case import Array, Inputs, Module, Run
from slipstream.infer import onnx_file
from slipstream.infer.engines.openvino import openvino_core
from slipstream.infer.importers.torch_modules import export


def onnx_of(model: Path | Module) -> bytes:
    """Returns the ONNX model as its file is, or as PyTorch exports the network."""
    if isinstance(model, Path):
        return model.read_bytes()
    exported = export(model.network, model.example, {})
    return onnx_file.to_model(exported.graph).SerializeToString()


def onnxruntime(model: bytes, threads: int) -> Run:
    """Returns what ONNX Runtime makes of a model in float32."""
    import onnxruntime as engine

    options = engine.SessionOptions()
    options.intra_op_num_threads = threads
    # Its threads would spin on while others have their turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3
    session: Any = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def openvino(model: bytes, example: Inputs, threads: int) -> Run:
    """Returns what OpenVINO makes of a model in float32, for inputs of the example's shapes.

    Raises:
        RuntimeError: it cannot.
    """
    core = openvino_core()
    read: Any = core.read_model(model)
    read.reshape({name: list(array.shape) for name, array in example.items()})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    compiled: Any = core.compile_model(read, "CPU", settings)
    request = compiled.create_infer_request()
    names = [output.get_any_name() for output in compiled.outputs]

    def run(inputs: Inputs) -> Mapping[str, Array]:
        request.infer(dict(inputs), share_inputs=True)
        tensors = (request.get_output_tensor(number) for number in range(len(names)))
        return dict(zip(names, (tensor.data for tensor in tensors), strict=True))

    run(example)
    return run
