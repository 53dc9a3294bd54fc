"""Loads a contender of an inference benchmark, as its users do, in the process that runs it."""

# The stubs of these packages leave most of their types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from slipstream.bench.infer_contenders import NETWORK, Contender, Engine
from slipstream.bench.infer_job import Job
from slipstream.infer.engines.openvino import openvino_package

Run = Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]


def load(contender: Contender, job: Job) -> tuple[Run, str]:
    """Returns what maps inputs by name to outputs by name, and for ours how it does so.

    What a call returns may be overwritten by the next one.
    """
    return _LOADERS[contender.engine](contender, job)


def _pytorch(contender: Contender, job: Job) -> tuple[Run, str]:
    import torch

    from slipstream.bench.infer_models import find_model

    torch.set_num_threads(job.threads)
    names = find_model(job.model).outputs
    # Written by the preparation, and so no stranger's.
    network: Any = torch.load(Path(job.folder, NETWORK), weights_only=False)
    if contender.engine == "inductor":
        from torch._inductor import config

        config.freezing = True
        network = torch.compile(network)

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.inference_mode() if contender.engine == "pytorch" else torch.no_grad():
            found = network(*(torch.from_numpy(array) for array in inputs.values()))
        several = found if isinstance(found, tuple) else (found,)
        return dict(zip(names, (each.numpy() for each in several), strict=True))

    return run, ""


def _onnxruntime(contender: Contender, job: Job) -> tuple[Run, str]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    # Its threads would spin on while others have their turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session: Any = onnxruntime.InferenceSession(
        str(Path(job.folder, contender.file)), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True)), ""


def _openvino(contender: Contender, job: Job) -> tuple[Run, str]:
    openvino = openvino_package()
    settings = {
        "INFERENCE_PRECISION_HINT": contender.hint,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": job.threads,
    }
    compiled: Any = openvino.Core().compile_model(Path(job.folder, contender.file), "CPU", settings)
    request = compiled.create_infer_request()
    names = [output.get_any_name() for output in compiled.outputs]

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        request.infer(inputs, share_inputs=True)
        tensors = (request.get_output_tensor(number) for number in range(len(names)))
        return dict(zip(names, (tensor.data for tensor in tensors), strict=True))

    return run, ""


def _slipstream(contender: Contender, job: Job) -> tuple[Run, str]:
    from slipstream import infer

    model = infer.load(Path(job.folder, contender.file), job.threads, check=False)
    recipe = model.manifest.recipe
    names = [output.name for output in model.manifest.outputs]

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        found = model(inputs)
        return found if isinstance(found, dict) else {names[0]: found}

    return run, f"{recipe.engine} {recipe.precision}"


_LOADERS: Mapping[Engine, Callable[[Contender, Job], tuple[Run, str]]] = {
    "pytorch": _pytorch,
    "inductor": _pytorch,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "slipstream": _slipstream,
}
