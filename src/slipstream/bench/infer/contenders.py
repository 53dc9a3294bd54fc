"""Contenders of `slipstream bench infer`, and the files that they load."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slipstream.errors import UsageError

Engine = Literal["pytorch", "inductor", "onnxruntime", "openvino", "slipstream"]
Precision = Literal["fp32", "bf16", "int8", "int8-weights", "any"]

TRANSFORMERS = ("bert_base", "vit_small")
OURS_FP32, OURS_BEST = "ours-fp32", "ours"

# Names of the files that `prepare` makes, in the order in which it makes them.
# the same model, EXPORTED for engines and NETWORK for PyTorch
EXPORTED, NETWORK = "model.onnx", "network.pt"
ORT_STATIC, ORT_DYNAMIC = "ort-int8.onnx", "ort-int8-dynamic.onnx"
OV_INT8, OV_WEIGHTS = "openvino-int8.xml", "openvino-int8-weights.xml"
PACKAGE_FP32, PACKAGE_BEST = "ours-fp32.slip", "ours.slip"

NEEDS: Mapping[str, str] = {ORT_STATIC: "onnxruntime", OV_INT8: "nncf", OV_WEIGHTS: "nncf"}


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineContender:
    """One way to run a model: an engine with a precision.

    Args:
        name: Name on the command line.
        title: Readable name.
        engine: Engine that runs the model.
        precision: Precision of matrix products; "any" for the fastest precision that the search
            found.
        file: Name of the file in the model's folder that the contender loads; "" for PyTorch's
            contenders.
        hint: Precision hint for the operators that OpenVINO does not quantise: "f32" or "bf16".
        models: Names of the only models that the contender runs (default empty: all models).
        is_default: Whether the contender runs if the user names no competing engines (default
            True).
    """

    name: str
    title: str
    engine: Engine
    precision: Precision
    file: str = ""
    hint: str = ""
    models: tuple[str, ...] = ()
    is_default: bool = True

    @property
    def is_ours(self) -> bool:
        """Whether the contender is Slipstream."""
        return self.engine == "slipstream"


def _openvino(name: str, title: str, precision: Precision, file: str, hint: str) -> EngineContender:
    return EngineContender(
        name=name, title=title, engine="openvino", precision=precision, file=file, hint=hint
    )


_ALL = (
    EngineContender(name="pytorch", title="PyTorch eager", engine="pytorch", precision="fp32"),
    EngineContender(
        name="inductor",
        title="torch.compile",
        engine="inductor",
        precision="fp32",
        is_default=False,
    ),
    EngineContender(
        name="ort",
        title="ONNX Runtime fp32",
        engine="onnxruntime",
        precision="fp32",
        file=EXPORTED,
    ),
    EngineContender(
        name="ort-int8",
        title="ONNX Runtime int8, static",
        engine="onnxruntime",
        precision="int8",
        file=ORT_STATIC,
    ),
    EngineContender(
        name="ort-int8-dynamic",
        title="ONNX Runtime int8, dynamic",
        engine="onnxruntime",
        precision="int8",
        file=ORT_DYNAMIC,
        models=TRANSFORMERS,
    ),
    _openvino("openvino", "OpenVINO fp32", "fp32", EXPORTED, "f32"),
    _openvino("openvino-bf16", "OpenVINO bf16", "bf16", EXPORTED, "bf16"),
    _openvino("openvino-int8-weights", "OpenVINO int8 weights", "int8-weights", OV_WEIGHTS, "f32"),
    _openvino("openvino-int8", "OpenVINO int8", "int8", OV_INT8, "f32"),
    _openvino("openvino-int8-bf16", "OpenVINO int8 and bf16", "int8", OV_INT8, "bf16"),
    EngineContender(
        name=OURS_FP32,
        title="Slipstream fp32",
        engine="slipstream",
        precision="fp32",
        file=PACKAGE_FP32,
    ),
    EngineContender(
        name=OURS_BEST,
        title="Slipstream",
        engine="slipstream",
        precision="any",
        file=PACKAGE_BEST,
    ),
)

CONTENDERS: Mapping[str, EngineContender] = {contender.name: contender for contender in _ALL}
PEERS = tuple(contender.name for contender in _ALL if not contender.is_ours)


def chosen(peers: Sequence[str] | None) -> list[EngineContender]:
    """Return the contenders of a run: the chosen competitors, and those of Slipstream.

    Args:
        peers: Names of the competitors, from `PEERS`; None for the default competitors.

    Raises:
        UsageError: a name is unknown.
    """
    for name in peers or ():
        if name not in PEERS:
            raise UsageError(f"the peer is {name!r}; allowed: {', '.join(PEERS)}")
    return [
        contender
        for contender in _ALL
        if contender.is_ours or (contender.is_default if peers is None else contender.name in peers)
    ]


def obstacle(contender: EngineContender, model: str) -> str:
    """Return the reason why a contender cannot run a model on this machine; "" if it can."""
    if contender.models and model not in contender.models:
        return f"it is documented for {' and '.join(contender.models)}"
    packages = {"pytorch": "torch", "inductor": "torch", "slipstream": "onnxruntime"}
    for package in (packages.get(contender.engine, contender.engine), NEEDS.get(contender.file)):
        if package is not None and importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    if contender.hint == "bf16" and not _multiplies_bfloat16():
        return "this processor does not multiply bfloat16"
    return ""


def _multiplies_bfloat16() -> bool:
    from slipstream.infer.engines.openvino import OpenVino

    return "bf16" in OpenVino().precisions()
