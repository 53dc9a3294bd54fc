"""Reader of ONNX models without their weights, and the type of a graph with known shapes."""

# The stubs of onnx leave some of its types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
import onnx.inliner
from onnx import ModelProto, NodeProto

from slipstream.errors import UsageError
from slipstream.forecast.trace.steps import TensorType

# Largest number of elements of a constant that may be a shape or an index. Only the shapes of
# larger constants are kept.
LARGEST_SHAPE = 1024
# Key under which PyTorch's exporter (`torch.export`) writes the module paths of an operator.
_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """An operator that runs on the device.

    Args:
        op: Type of the operator, such as "MatMul".
        name: Name of the operator in the model.
        module: Path of the module that the operator belongs to; "" if the exporter does not record
            modules.
        inputs: Names of the operator's inputs; "" for an optional input that is left out.
        outputs: Names of the operator's outputs.
        attributes: Attributes as Python values.
    """

    op: str
    name: str
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShapedGraph:
    """A graph in which every shape is known.

    Args:
        nodes: Operators that run on the device, in order of execution.
        tensors: Shape and dtype of each tensor, by tensor name.
        stored: Names of the initialisers (tensors stored in the file), in the order of the file.
        inputs: Names of the model's inputs.
        outputs: Names of the model's outputs.
        constants: Tensors that are known before the model runs and are not trained, by name.
    """

    nodes: tuple[OnnxNode, ...]
    tensors: Mapping[str, TensorType]
    stored: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, npt.NDArray[Any]]


def read(path: Path) -> ModelProto:
    """Return a model without its large constants, and with its ONNX functions inlined.

    Args:
        path: Path of an .onnx file; separate files of weights are not read.

    Raises:
        UsageError: The file cannot be read, or is not an ONNX model.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
        _drop_weights(model)
        if len(model.functions) > 0:
            model = onnx.inliner.inline_local_functions(model)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf and onnx raise many kinds
        raise UsageError(f"{path} is no ONNX model: {error}") from error
    if len(model.graph.node) == 0 or len(model.opset_import) == 0:
        raise UsageError(f"{path} is no ONNX model: it has no operators")
    return model


def _drop_weights(model: ModelProto) -> None:
    for item in model.graph.initializer:
        if math.prod(item.dims) > LARGEST_SHAPE:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                item.ClearField(field)


def module_path(node: NodeProto) -> str:
    """Return the path of the module that an operator belongs to, or "" if no module is recorded.

    Args:
        node: Operator whose metadata lists the modules from the root to the operator. Older
            exporters of PyTorch list the modules in the operator's name, such as
            "/blocks/blocks.0/mlp/MatMul".
    """
    for item in node.metadata_props:
        if item.key == _SCOPES:
            scopes: list[str] = ast.literal_eval(item.value)
            return scopes[-2] if len(scopes) > 1 else ""
    path = ""
    if node.name.startswith("/"):
        for part in node.name[1:].split("/")[:-1]:
            inside = part.startswith(f"{path}.") or not path
            path = part if inside else f"{path}.{part}"
    return path
