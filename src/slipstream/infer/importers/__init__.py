"""Models of several kinds, as graphs whose shapes are fixed."""

from __future__ import annotations

import importlib
import re
import sys
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

SUPPORTED = (
    "an ONNX model (a .onnx file, or its bytes), a torch.nn.Module or torch.export.ExportedProgram,"
    " a .pt2 file, a Keras model, a SavedModel folder, a .keras or .h5 file, a tf.function, a JAX"
    " function with its inputs, a .prototxt file of Caffe, a -symbol.json file of MXNet, a .mdl,"
    " .raw or .nnet3 file of Kaldi, or package.module:factory that returns a model or (model,"
    " inputs)"
)
TORCH = "pip install torch"
JAX = "pip install 'slipstream[jax]'"
TENSORFLOW = "pip install 'slipstream[tensorflow]'"
FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Imported:
    """An imported model.

    Args:
        graph: Graph with every input's shape known, before any rewrite.
        module: PyTorch module that takes the graph's inputs in their order; None for other models,
            and where nobody measures it.
        origin: Source of the model, as text for people.
        notes: Assumptions and measurements of the import, each a sentence for people.
        is_module: True if the model was imported from a module of PyTorch as it is.
        is_classifier: True if the first output has a number for each class along its last axis,
            whether or not these are probabilities (default False: the outputs show whether).
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
        source: ONNX, as a path or bytes; a PyTorch module or exported program, a Keras model, a
            function of TensorFlow or JAX, as an object, or as the name of its factory,
            "package.module:function"; the path of a .pt2, .keras or .h5 file, of a SavedModel
            folder, of Caffe's net.prototxt, MXNet's net-symbol.json or Kaldi's final.mdl. A factory
            takes no arguments; it may return the model and its example inputs.
        example_inputs: Inputs of a module or function: an array, a sequence in the order of the
            arguments, or a dictionary by argument.
        shapes: Shapes, by name, of inputs that the model leaves open.
        weights: Weight file of a model that has a separate one (default: the file beside it).
        large_bytes: size of a PyTorch module's parameters from which no more copies of them are
            made than have to be; default 1 GiB.

    Raises UsageError for what cannot be imported, and says why, operator by operator.
    """
    chosen = dict(shapes or {})
    if isinstance(source, (str, Path)):
        found = read_by_file(Path(source), None if weights is None else Path(weights), chosen)
        if found is not None:
            return Imported(found[0], None, str(source), found[1])
    if weights is not None:
        raise UsageError(f"weights are {weights}, but the model has no file of weights of its own")
    if isinstance(source, (str, Path)) and not _is_factory(str(source)):
        return _of_file(Path(source), example_inputs, chosen)
    if isinstance(source, bytes):
        return _of_graph(read_onnx(source), chosen, f"{len(source)} bytes of ONNX")
    origin = f"the {type(source).__name__}"
    if isinstance(source, (str, Path)):
        origin = str(source)
        source, example_inputs = _made(origin, example_inputs)
    return _of_object(source, example_inputs, chosen, origin, large_bytes)


def resolve(name: str) -> Any:
    """What `package.module:attribute` names; UsageError where there is no such thing.

    Modules are looked for beside the program and in the current folder.
    """
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except SystemExit as error:  # of argparse, which reads what this command was told
        raise UsageError(
            f"{module_name} ended as it was imported ({error}): put what it runs by itself, as the"
            " reading of its arguments, under if __name__ == '__main__':"
        ) from error
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{name}: {error}; say package.module:name") from error
    finally:
        if added:
            sys.path.remove(here)


def _of_file(path: Path, example: object, shapes: Mapping[str, Any]) -> Imported:
    if path.suffix == ".pt2":
        _need("torch", TORCH)
        return _of_torch(read_program(path), example, shapes, str(path))
    if is_saved(path):
        _need("tensorflow", TENSORFLOW)
        return _of_tensorflow(read_saved(path), example, shapes, str(path))
    if path.suffix != ".onnx":
        raise UsageError(f"{path}: this kind of model is not known; it may be {SUPPORTED}")
    return _of_graph(read_onnx(path), shapes, str(path))


def _of_object(
    source: Any, example: object, shapes: Mapping[str, Any], origin: str, large_bytes: int
) -> Imported:
    if is_torch(source):
        return _of_torch(source, example, shapes, origin, large_bytes)
    if is_tensorflow(source):
        return _of_tensorflow(source, example, shapes, origin)
    if is_function(source):
        return _of_jax(source, example, origin)
    raise UsageError(f"{origin} is no model that is known; it may be {SUPPORTED}")


def _is_factory(text: str) -> bool:
    return FACTORY.fullmatch(text) is not None


def _made(name: str, example_inputs: object) -> tuple[Any, object]:
    made: Any = called(f"the factory {name}", resolve(name))
    if not isinstance(made, tuple):
        return made, example_inputs
    module, inputs = made if len(made) == 2 else (None, None)  # pyright: ignore
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
    note = f"the exported graph is the module's to {exported.snr_db:.0f} dB"
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
