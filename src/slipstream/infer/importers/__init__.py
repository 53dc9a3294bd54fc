"""Importers, which turn models of several frameworks and formats into graphs with fixed shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.infer.engines.modules import missing
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers.by_file import read_by_file
from slipstream.infer.importers.jax.functions import import_function, is_function
from slipstream.infer.importers.onnx_models import read_onnx
from slipstream.infer.importers.shapes import fix_shapes
from slipstream.infer.importers.shapes import parse_shape as parse_shape
from slipstream.infer.importers.tensorflow.models import (
    import_tensorflow,
    is_saved,
    is_tensorflow,
    read_saved,
)
from slipstream.infer.importers.torch_modules import Exported, export, is_torch, read_program
from slipstream.infer.importers.user_errors import called
from slipstream.infer.machine import LARGE_BYTES
from slipstream.user_modules import import_user_object

SUPPORTED = (
    "an ONNX model (a .onnx file, or its bytes), a torch.nn.Module or torch.export.ExportedProgram,"
    " a .pt2 file, a Keras model, a SavedModel folder, a .keras or .h5 file, a tf.function, a JAX"
    " function with its inputs, a .prototxt file of Caffe, a -symbol.json file of MXNet, a .mdl,"
    " .raw or .nnet3 file of Kaldi, or package.module:function or path.py:function that returns"
    " a model or (model, inputs)"
)
TORCH = "pip install torch"
JAX = "pip install 'slipstream[jax]'"
TENSORFLOW = "pip install 'slipstream[tensorflow]'"
FACTORY = re.compile(r"(?:[A-Za-z_][\w.]*|[^:]+\.py):[A-Za-z_]\w*")


@dataclass(frozen=True)
class Imported:
    """An imported model.

    Args:
        graph: Graph before any rewrite; the shape of every input is fixed.
        module: PyTorch module for measurements, which takes the graph's inputs in the graph's
            order; None for models that are not from PyTorch.
        origin: Description of the model's source, for messages.
        notes: Sentences that tell the user what the import assumed and measured.
        is_module: Whether the model was imported directly from a PyTorch module.
        is_classifier: Whether the last axis of the first output is known to have one number for
            each class, even if the numbers are not probabilities. If False (default), the values of
            the outputs show whether the model is a classifier.
    """

    graph: Graph
    module: Any
    origin: str
    notes: tuple[str, ...] = ()
    is_module: bool = False
    is_classifier: bool = False


def load_model(
    source: Any,
    example_inputs: object = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    weights: str | Path | None = None,
    large_bytes: int = LARGE_BYTES,
) -> Imported:
    """Import a model.

    Args:
        source: Model to import: an object, a path, the bytes of an ONNX model, or the name of a
            factory. Objects are PyTorch modules, exported programs, Keras models, and functions of
            TensorFlow or JAX. Paths are those of .onnx, .pt2, .keras and .h5 files, SavedModel
            folders, .prototxt files of Caffe, -symbol.json files of MXNet and .mdl files of Kaldi.
            A factory, "package.module:function", is a function without arguments that returns an
            object, or a pair of an object and example inputs.
        example_inputs: Inputs of a module or function: an array, a sequence in the order of the
            arguments, or a dictionary by argument name (default none).
        shapes: Input shapes by name, for inputs whose shape the model leaves open (default none).
        weights: File of the weights, for formats that store weights in a separate file (default:
            the file beside the model file).
        large_bytes: Threshold in bytes for the total size of a module's parameters (default 1 GiB).
            If the parameters of a PyTorch module have at least `large_bytes` together, the import
            first tries an exporter that does not copy them.

    Raises:
        UsageError: If the model cannot be imported; the message lists every operator at fault.
    """
    input_shapes = dict(shapes or {})
    if isinstance(source, (str, Path)):
        imported = read_by_file(
            Path(source), None if weights is None else Path(weights), input_shapes
        )
        if imported is not None:
            return Imported(imported[0], None, str(source), imported[1])
    if weights is not None:
        raise UsageError(
            f"a weight file is given ({weights}), but this kind of model has no separate weights"
        )
    if isinstance(source, (str, Path)) and not _is_factory(str(source)):
        return _of_file(Path(source), example_inputs, input_shapes)
    if isinstance(source, bytes):
        return _of_graph(read_onnx(source), input_shapes, f"{len(source)} bytes of ONNX")
    origin = f"the {type(source).__name__}"
    if isinstance(source, (str, Path)):
        origin = str(source)
        source, example_inputs = _made(origin, example_inputs)
    return _of_object(source, example_inputs, input_shapes, origin, large_bytes)


def _of_file(path: Path, example: object, shapes: Mapping[str, Any]) -> Imported:
    if path.suffix == ".pt2":
        _need("torch", TORCH)
        return _of_torch(read_program(path), example, shapes, str(path))
    if is_saved(path):
        _need("tensorflow", TENSORFLOW)
        return _of_tensorflow(read_saved(path), example, shapes, str(path))
    if path.suffix != ".onnx":
        raise UsageError(f"{path}: this kind of file cannot be imported; allowed: {SUPPORTED}")
    return _of_graph(read_onnx(path), shapes, str(path))


def _of_object(
    source: Any, example: object, shapes: Mapping[str, Any], origin: str, large_bytes: int
) -> Imported:
    if example is not None and shapes:
        raise UsageError(
            f"{origin} comes with example inputs, which have their own shapes, and shapes are given"
            f" for {', '.join(shapes)}; allowed: one of the two"
        )
    if is_torch(source):
        return _of_torch(source, example, shapes, origin, large_bytes)
    if is_tensorflow(source):
        return _of_tensorflow(source, example, shapes, origin)
    if is_function(source):
        return _of_jax(source, example, origin)
    raise UsageError(f"{origin} is not a model that can be imported; allowed: {SUPPORTED}")


def _is_factory(text: str) -> bool:
    return FACTORY.fullmatch(text) is not None


def _made(name: str, example_inputs: object) -> tuple[Any, object]:
    result: Any = called(f"the factory {name}", import_user_object(name))
    if not isinstance(result, tuple):
        return result, example_inputs
    module, inputs = result if len(result) == 2 else (None, None)  # pyright: ignore
    return module, inputs if example_inputs is None else example_inputs  # pyright: ignore


def _need(package: str, install: str) -> None:
    reason = missing(package, install)
    if reason is not None:
        raise UsageError(reason)


def _of_torch(
    source: Any,
    example: object,
    shapes: Mapping[str, Any],
    origin: str,
    large_bytes: int = LARGE_BYTES,
) -> Imported:
    exported: Exported = export(source, example, shapes, large_bytes)
    note = (
        "the signal-to-noise ratio of the exported graph against the module is"
        f" {exported.snr_db:.0f} dB"
    )
    graph, notes = fix_shapes(exported.graph, {})
    return Imported(graph, exported.module, origin, (note, *notes), is_module=True)


def _of_tensorflow(
    source: Any, example: object, shapes: Mapping[str, Any], origin: str
) -> Imported:
    proved, notes = import_tensorflow(source, example, shapes, origin)
    return Imported(proved.graph, None, origin, (proved.note, *notes))


def _of_jax(function: Any, example: object, origin: str) -> Imported:
    _need("jax", JAX)
    proved = import_function(function, example, origin)
    return Imported(proved.graph, None, origin, (proved.note,))


def _of_graph(graph: Graph, shapes: Mapping[str, Any], origin: str) -> Imported:
    fixed, notes = fix_shapes(graph, shapes)
    return Imported(fixed, None, origin, notes)
