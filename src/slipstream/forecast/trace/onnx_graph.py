"""ONNX models as values: files read without their weights, and graphs whose shapes are known."""

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
from slipstream.forecast.trace.steps import Tensor

# Elements of a constant that may be a shape, an index or the like. Of others, only shapes are kept.
LARGEST_SHAPE = 1024
# What PyTorch's exporter by `torch.export` says of an operator.
_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True, slots=True)
class Node:
    """An operator that runs on the device.

    Args:
        op: its type.
        name: in the model.
        module: path of the module that it is of; "" where the exporter does not say it.
        inputs: values; "" for those left out.
        outputs: values.
        attributes: as Python has them.
    """

    op: str
    name: str
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph whose shapes are known.

    Args:
        nodes: that run, in order.
        tensors: all values by name.
        stored: initialisers, in their order.
        inputs: of the model.
        outputs: of the model.
        constants: values that are known, and not trained.
    """

    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    stored: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, npt.NDArray[Any]]


def read(path: Path) -> ModelProto:
    """Returns a model without its large constants, with its functions put in their places.

    Args:
        path: of an .onnx file; files of weights beside it are not read.

    Raises:
        UsageError: it cannot be read, or is no ONNX model.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
        _drop_weights(model)
        if len(model.functions) > 0:
            model = onnx.inliner.inline_local_functions(model)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf and onnx have many
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
    """Returns the path of the module that an operator is of, "" where none is said.

    Args:
        node: whose metadata lists paths from the root to it, or whose name does so as older
            exporters of PyTorch have it, "/blocks/blocks.0/mlp/MatMul".
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
