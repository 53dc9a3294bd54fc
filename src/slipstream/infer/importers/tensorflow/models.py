"""Importer of SavedModel folders, Keras models and their files, and TensorFlow functions.

TensorFlow itself inlines weights and functions. The remaining ops are converted to ONNX operators;
for each type of op, a function (its rule) does this. On example inputs, the results of the graph
are compared with the results of the model.
"""

# TensorFlow has no stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph, Value
from slipstream.infer.importers.builder import Builder, distinct_names
from slipstream.infer.importers.proof import Proved, prove
from slipstream.infer.importers.shapes import Shapes, fix_shapes
from slipstream.infer.importers.step import Operand, Unimportable, graph_dtype, plain
from slipstream.infer.importers.tensorflow.reader import TensorFlowReader

KERAS_FILES = (".h5", ".hdf5", ".keras")
STDERR = 2
NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class _Signature:
    """A model as a function of named tensors.

    Args:
        inputs: Dtypes and shapes of the inputs, by name; dimensions may be unknown.
        dtypes: TensorFlow's dtypes of the inputs, by name.
        call: Function that takes tensors in the order of `inputs` and returns a tree of tensors.
        outputs: Names of the results; () if the model does not name its results.
    """

    inputs: Mapping[str, Value]
    dtypes: Mapping[str, Any]
    call: Callable[..., Any]
    outputs: tuple[str, ...] = ()


def is_tensorflow(source: object) -> bool:
    """Return whether an object is a callable of Keras or TensorFlow, without importing either."""
    homes = {kind.__module__.partition(".")[0] for kind in type(source).__mro__}
    return callable(source) and not homes.isdisjoint(("keras", "tensorflow"))


def is_saved(path: Path) -> bool:
    """Return whether the path is a file or folder written by Keras or TensorFlow."""
    return path.suffix in KERAS_FILES or (path / "saved_model.pb").is_file()


def read_saved(path: Path) -> Any:
    """Load a Keras file or a SavedModel folder; raise UsageError if that fails."""
    with _quiet():
        import tensorflow

        try:
            if path.suffix in KERAS_FILES:
                return tensorflow.keras.models.load_model(str(path), compile=False)
            return tensorflow.saved_model.load(str(path))
        except Exception as error:  # errors of Keras, h5py, zip and TensorFlow
            raise UsageError(f"{path}: TensorFlow cannot read it: {error}") from error


def import_tensorflow(
    source: Any, example_inputs: object, shapes: Shapes, what: str
) -> tuple[Proved, tuple[str, ...]]:
    """Return a model's graph with its signal-to-noise ratio, and notes about assumed shapes.

    Args:
        source: Keras model, tf.function, or loaded SavedModel. From a SavedModel, the signature
            `serving_default` is imported, or the only signature.
        example_inputs: Array; or several arrays, as a sequence in the order of the inputs or as a
            dictionary by input name. If `example_inputs` is None, the inputs are random numbers in
            the shapes that the model declares.
        shapes: Shapes by input name, for inputs whose shape the model leaves open.
        what: Name of the model in error messages.

    Raises:
        UsageError: If shapes remain unknown, if ops cannot be imported (the message lists all of
            them), or if results of the graph and the model differ.
    """
    with _quiet():
        import tensorflow

        signature = _signature(source, example_inputs, what)
        example = _by_name(example_inputs, list(signature.inputs), what)
        known_shapes = {**{name: np.shape(item) for name, item in example.items()}, **shapes}
        open_graph = Graph(dict(signature.inputs), [], [], {})
        fixed, notes = fix_shapes(open_graph, known_shapes)
        specs = [
            tensorflow.TensorSpec(value.fixed or (), signature.dtypes[name], name=_plain_name(name))
            for name, value in fixed.inputs.items()
        ]
        tensors = _tensors(specs, list(fixed.inputs), example)
        try:
            results = _flat(signature.call(*tensors), signature.outputs)
            graph = _graph(signature, specs, list(fixed.inputs), list(results), what)
        except (ValueError, TypeError, tensorflow.errors.OpError) as error:
            raise UsageError(f"{what}: TensorFlow cannot run it: {error}") from error
        feeds = {
            name: plain(tensor.numpy()) for name, tensor in zip(fixed.inputs, tensors, strict=True)
        }
        expected = {name: plain(item.numpy()) for name, item in results.items()}
    return prove(graph, feeds, expected, what), notes


@contextmanager
def _quiet() -> Generator[None]:
    """Discard what all threads of the process write to stderr.

    No errors are lost, because TensorFlow reports them as exceptions.
    """
    sys.stderr.flush()
    original, null_device = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, STDERR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(original, STDERR)
        os.close(original)
        os.close(null_device)


# ---- signatures --------------------------------------------------------------------------------


def _signature(source: Any, example: object, what: str) -> _Signature:
    signatures = getattr(source, "signatures", None)
    if isinstance(signatures, Mapping) and signatures:
        return _saved_signature(signatures, what)
    if getattr(source, "inputs", None) and _is_keras(source):
        return _keras_signature(source)
    concrete = getattr(source, "structured_input_signature", None)
    specs = concrete or (((getattr(source, "input_signature", None) or ()), {}))
    if specs[0] or specs[1]:
        named = {**_by_position(specs[0]), **specs[1]}
        return _signature_of_specs(named, source)
    return _signature_of_example(source, example, what)


def _is_keras(source: Any) -> bool:
    return any(kind.__module__.startswith("keras") for kind in type(source).__mro__)


def _saved_signature(signatures: Mapping[str, Any], what: str) -> _Signature:
    if "serving_default" in signatures or len(signatures) == 1:
        function = signatures.get("serving_default") or next(iter(signatures.values()))
        specs = _ordered(function.structured_input_signature[1])
        names = list(specs)

        def call(*tensors: Any) -> Any:
            return _ordered(function(**dict(zip(names, tensors, strict=True))))

        return _signature_of_specs(specs, call)
    raise UsageError(
        f"{what}: its signatures are {', '.join(signatures)}, and none is serving_default; save the"
        " model with only the signature to compile"
    )


def _keras_signature(model: Any) -> _Signature:
    import tensorflow

    names = distinct_names(_keras_name(tensor) for tensor in model.inputs)
    structure = model.input

    def call(*tensors: Any) -> Any:
        return model(tensorflow.nest.pack_sequence_as(structure, tensors), training=False)

    specs = dict(zip(names, model.inputs, strict=True))
    outputs = tuple(distinct_names(getattr(model, "output_names", ())))
    return _signature_of_specs(specs, call, outputs)


def _keras_name(tensor: Any) -> str:
    """Return the name that the user gave to an input, or the name of the input's layer."""
    history = getattr(tensor, "_keras_history", None)
    operation = getattr(history, "operation", None)
    return str(operation.name if operation is not None else tensor.name)


def _by_position(specs: Sequence[Any]) -> dict[str, Any]:
    names = [str(spec.name or f"input_{at}") for at, spec in enumerate(specs)]
    return dict(zip(distinct_names(names), specs, strict=True))


def _signature_of_specs(
    specs: Mapping[str, Any], call: Callable[..., Any], outputs: tuple[str, ...] = ()
) -> _Signature:
    import tensorflow

    inputs: dict[str, Value] = {}
    for name, spec in specs.items():
        shape: Any = tensorflow.TensorShape(spec.shape)
        sizes = None if shape.rank is None else tuple(shape.as_list())
        inputs[name] = Value(_numpy_dtype(tensorflow.as_dtype(spec.dtype), name), sizes)
    dtypes = {name: tensorflow.as_dtype(spec.dtype) for name, spec in specs.items()}
    return _Signature(inputs, dtypes, call, outputs)


def _signature_of_example(source: Any, example: object, what: str) -> _Signature:
    """Build a signature from example inputs, for a model that has no signature.

    The inputs get the names of the function's arguments.
    """
    import tensorflow

    if example is None:
        raise UsageError(
            f"{what}: the shapes of its inputs are unknown; pass example_inputs, or let the factory"
            " return (model, inputs)"
        )
    function = getattr(source, "python_function", None) or getattr(source, "call", None) or source
    names = [
        item.name
        for item in inspect.signature(function).parameters.values()
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
    ]
    named = _by_name(example, [name for name in names if name != "self"], what)
    arrays = {name: tensorflow.convert_to_tensor(item) for name, item in named.items()}
    options = {"training": False} if _is_keras(source) and "training" in names else {}

    def call(*tensors: Any) -> Any:
        return source(**dict(zip(arrays, tensors, strict=True)), **options)

    return _signature_of_specs(arrays, call)


def _numpy_dtype(dtype: Any, name: str) -> np.dtype[Any]:
    try:
        return graph_dtype(dtype.name)
    except Unimportable as reason:
        raise UsageError(f"input {name!r} is {reason}; allowed: numbers and bool") from reason


def _by_name(example: object, names: Sequence[str], what: str) -> dict[str, Any]:
    if example is None:
        return {}
    if isinstance(example, Mapping):
        items = {str(name): item for name, item in example.items()}
    else:
        sequence = list(example) if isinstance(example, (tuple, list)) else [example]
        items = dict(zip(names, sequence, strict=False))
    unknown = sorted(items.keys() - set(names))
    if unknown:
        raise UsageError(
            f"{what}: there is no input {', '.join(unknown)}; it has {', '.join(names)}"
        )
    return items


def _tensors(specs: Sequence[Any], names: Sequence[str], example: Mapping[str, Any]) -> list[Any]:
    """Return the example's tensors, and random numbers or zeros for inputs without an example."""
    import tensorflow

    random, tensors = np.random.default_rng(0), list[Any]()
    for spec, name in zip(specs, names, strict=True):
        array = example.get(name)
        if array is None:
            is_float = spec.dtype.is_floating
            array = random.standard_normal(spec.shape) if is_float else np.zeros(spec.shape)
        tensors.append(tensorflow.cast(tensorflow.convert_to_tensor(array), spec.dtype))
    return tensors


def _flat(tree: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the results of a call as tensors, by name."""
    import tensorflow

    if isinstance(tree, Mapping):
        return {str(name): tensorflow.convert_to_tensor(item) for name, item in tree.items()}
    leaves = [tensorflow.convert_to_tensor(item) for item in tensorflow.nest.flatten(tree)]
    if len(names) != len(leaves):
        numbered = [f"output_{at}" for at in range(len(leaves))]
        names = ["output"] if len(leaves) == 1 else numbered
    return dict(zip(names, leaves, strict=True))


def _ordered(items: Mapping[str, Any]) -> dict[str, Any]:
    """Sort items by name; numbers in names are compared by value.

    Without sorting, the order of the items would differ between two loadings of a SavedModel.
    """

    def sort_key(name: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdigit() else (-1, part) for part in NUMBERS.split(name)]

    return {name: items[name] for name in sorted(items, key=sort_key)}


def _plain_name(name: str) -> str:
    """Return the name with "_" in place of characters that TensorFlow forbids."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


# ---- the graph ---------------------------------------------------------------------------------


def _graph(
    signature: _Signature,
    specs: Sequence[Any],
    names: Sequence[str],
    outputs: Sequence[str],
    what: str,
) -> Graph:
    import tensorflow
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    def flat(*tensors: Any) -> list[Any]:
        return [
            tensorflow.identity(item)
            for item in _flat(signature.call(*tensors), signature.outputs).values()
        ]

    traced = tensorflow.function(flat, autograph=False).get_concrete_function(*specs)
    frozen = convert_variables_to_constants_v2(traced, lower_control_flow=False)
    definition = frozen.graph.as_graph_def()
    with tensorflow.Graph().as_default() as graph:
        tensorflow.import_graph_def(definition, name="")
    library = {item.signature.name: item for item in definition.library.function}
    builder = Builder("tensorflow")
    reader = TensorFlowReader(builder, graph, library)
    values: dict[str, Operand] = {}
    for name, spec, tensor in zip(names, specs, frozen.inputs, strict=True):
        shape = tuple(spec.shape.as_list())
        builder.input(name, shape, graph_dtype(spec.dtype.name))
        values[tensor.name] = Operand(name, shape)
    fetches = [graph.get_tensor_by_name(tensor.name) for tensor in frozen.outputs]
    results = reader.run(values, fetches)
    if reader.refused:
        text = ", ".join(f"{name} ({count})" for name, count in sorted(reader.refused.items()))
        raise UsageError(
            f"{what}: these ops of TensorFlow cannot be imported (with their number of uses):"
            f" {text}; replace them by others"
        )
    return builder.finish(
        {name: reader.named(item) for name, item in zip(outputs, results, strict=True)}
    )
