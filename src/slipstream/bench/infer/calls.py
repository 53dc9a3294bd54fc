"""Functions that call each engine as its users do, and map named inputs to named outputs."""

# The type stubs of these packages leave most types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from slipstream.infer.engines.openvino import openvino_core

if TYPE_CHECKING:
    from slipstream.infer import Model

Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]

LOG_ERRORS = 3  # log level of ONNX Runtime: only errors are logged


def of_onnxruntime(model: bytes | str, threads: int) -> Run:
    """Return a function that runs a model with ONNX Runtime.

    Args:
        model: Bytes of the model, or the path of its file.
        threads: Number of threads of the engine.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Otherwise the threads of this engine would spin while other contenders have their turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = LOG_ERRORS
    session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def of_openvino(model: Any, threads: int, hint: str) -> Run:
    """Return a function that runs a model with OpenVINO; each call overwrites the last result.

    Args:
        model: OpenVINO model, or the path of its file.
        threads: Number of threads of the engine.
        hint: Precision hint of OpenVINO: "f32" or "bf16".
    """
    settings = {
        "INFERENCE_PRECISION_HINT": hint,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    compiled: Any = openvino_core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    names = [output.get_any_name() for output in compiled.outputs]

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        request.infer(dict(inputs), share_inputs=True)
        tensors = (request.get_output_tensor(number) for number in range(len(names)))
        return dict(zip(names, (tensor.data for tensor in tensors), strict=True))

    return run


def of_ours(model: Model) -> Run:
    """Return a function that runs a compiled model, and returns a dictionary of outputs by name."""
    names = [output.name for output in model.manifest.outputs]

    def run(inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        outputs = model(inputs)
        return outputs if isinstance(outputs, dict) else {names[0]: outputs}

    return run
