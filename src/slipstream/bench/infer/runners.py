"""Functions that load a contender into its process, as users of its engine do."""

# The type stubs of these packages leave most types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from slipstream.bench.infer.calls import Run, of_onnxruntime, of_openvino, of_ours
from slipstream.bench.infer.contenders import NETWORK, Engine, EngineContender
from slipstream.bench.infer.job import InferJob


def load(contender: EngineContender, job: InferJob) -> tuple[Run, str]:
    """Return a function that maps named inputs to named outputs, and a description of the engine.

    The description is the engine and precision of the model compiled by Slipstream; it is empty for
    other engines. A call may overwrite the arrays that the previous call returned.
    """
    return _LOADERS[contender.engine](contender, job)


def _pytorch(contender: EngineContender, job: InferJob) -> tuple[Run, str]:
    import torch

    from slipstream.bench.infer.models import find_model

    torch.set_num_threads(job.threads)
    names = find_model(job.model).outputs
    # The benchmark itself wrote this file, so it is safe to unpickle.
    network: Any = torch.load(Path(job.folder, NETWORK), weights_only=False)
    if contender.engine == "inductor":
        from torch._inductor import config

        config.freezing = True
        network = torch.compile(network)

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.inference_mode() if contender.engine == "pytorch" else torch.no_grad():
            outputs = network(*(torch.from_numpy(array) for array in inputs.values()))
        tensors = outputs if isinstance(outputs, tuple) else (outputs,)
        return dict(zip(names, (tensor.numpy() for tensor in tensors), strict=True))

    return run, ""


def _onnxruntime(contender: EngineContender, job: InferJob) -> tuple[Run, str]:
    return of_onnxruntime(str(Path(job.folder, contender.file)), job.threads), ""


def _openvino(contender: EngineContender, job: InferJob) -> tuple[Run, str]:
    file = Path(job.folder, contender.file)
    return of_openvino(file, job.threads, contender.hint), ""


def _slipstream(contender: EngineContender, job: InferJob) -> tuple[Run, str]:
    from slipstream import infer

    model = infer.load(Path(job.folder, contender.file), job.threads, check=False)
    recipe = model.manifest.recipe
    return of_ours(model), f"{recipe.engine} {recipe.precision}"


_LOADERS: Mapping[Engine, Callable[[EngineContender, InferJob], tuple[Run, str]]] = {
    "pytorch": _pytorch,
    "inductor": _pytorch,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "slipstream": _slipstream,
}
