"""TensorFlow's models: SavedModel folders, Keras models and their files, functions.

TensorFlow itself puts weights and functions in their places; the ops that remain become operators
of ONNX, each by its rule. What comes out is compared with what the model itself computes.
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
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph, Value
from slipstream.infer.importers.builder import Builder
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
        inputs: what is known of them.
        dtypes: TensorFlow's, by the same names.
        call: takes tensors in the order of the inputs; gives a tree of tensors.
        outputs: names of the results, where the model has names for them.
    """

    inputs: Mapping[str, Value]
    dtypes: Mapping[str, Any]
    call: Callable[..., Any]
    outputs: tuple[str, ...] = ()


def is_tensorflow(source: object) -> bool:
    """Tell whether the object is a Keras model or a TensorFlow callable; import nothing."""
    homes = {kind.__module__.partition(".")[0] for kind in type(source).__mro__}
    return callable(source) and not homes.isdisjoint(("keras", "tensorflow"))


def is_saved(path: Path) -> bool:
    """Tell whether the path is a file or folder written by Keras or TensorFlow."""
    return path.suffix in KERAS_FILES or (path / "saved_model.pb").is_file()


def read_saved(path: Path) -> Any:
    """Load a Keras file or a SavedModel; UsageError if it cannot be read."""
    with _quiet():
        import tensorflow

        try:
            if path.suffix in KERAS_FILES:
                return tensorflow.keras.models.load_model(str(path), compile=False)
            return tensorflow.saved_model.load(str(path))
        except Exception as error:  # of Keras, of h5py, of zip, of TensorFlow
            raise UsageError(f"{path}: TensorFlow cannot read it: {error}") from error


def import_tensorflow(
    source: Any, example_inputs: object, shapes: Shapes, what: str
) -> tuple[Proved, tuple[str, ...]]:
    """The graph of a model, and what was assumed.

    Args:
        source: a model of Keras, what a SavedModel holds (its signature `serving_default`, or the
            only one), or a tf.function.
        example_inputs: an array, a sequence in the order of the inputs, or a dictionary by input.
            Left out (None): random numbers of the model's own shapes.
        shapes: Shapes, by input, that the model leaves open.
        what: Name of the model in errors.

    Raises UsageError for shapes that remain open, for every op that cannot be imported, all at
    once, and where the graph computes something else.
    """
    with _quiet():
        import tensorflow

        signature = _signature(source, example_inputs, what)
        example = _by_name(example_inputs, list(signature.inputs), what)
        given = {**{name: np.shape(item) for name, item in example.items()}, **shapes}
        open_graph = Graph(dict(signature.inputs), [], [], {})
        fixed, notes = fix_shapes(open_graph, given)
        specs = [
            tensorflow.TensorSpec(value.fixed or (), signature.dtypes[name], name=_plain_name(name))
            for name, value in fixed.inputs.items()
        ]
        tensors = _tensors(specs, list(fixed.inputs), example)
        try:
            found = _flat(signature.call(*tensors), signature.outputs)
            graph = _graph(signature, specs, list(fixed.inputs), list(found), what)
        except (ValueError, TypeError, tensorflow.errors.OpError) as error:
            raise UsageError(f"{what}: TensorFlow cannot run it: {error}") from error
        feeds = {
            name: plain(tensor.numpy()) for name, tensor in zip(fixed.inputs, tensors, strict=True)
        }
        right = {name: plain(item.numpy()) for name, item in found.items()}
    return prove(graph, feeds, right, what), notes


@contextmanager
def _quiet() -> Generator[None]:
    """Send what TensorFlow's libraries write to the terminal nowhere: its errors are exceptions.

    It concerns the whole process while it lasts.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDERR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)
        os.close(nowhere)


# ---- signatures --------------------------------------------------------------------------------


def _signature(source: Any, example: object, what: str) -> _Signature:
    signatures = getattr(source, "signatures", None)
    if isinstance(signatures, Mapping) and signatures:
        return _of_saved(signatures, what)
    if getattr(source, "inputs", None) and _is_keras(source):
        return _of_keras(source)
    concrete = getattr(source, "structured_input_signature", None)
    specs = concrete or (((getattr(source, "input_signature", None) or ()), {}))
    if specs[0] or specs[1]:
        named = {**_by_position(specs[0]), **specs[1]}
        return _of_specs(named, source)
    return _of_example(source, example, what)


def _is_keras(source: Any) -> bool:
    return any(kind.__module__.startswith("keras") for kind in type(source).__mro__)


def _of_saved(signatures: Mapping[str, Any], what: str) -> _Signature:
    if "serving_default" in signatures or len(signatures) == 1:
        function = signatures.get("serving_default") or next(iter(signatures.values()))
        specs = _ordered(function.structured_input_signature[1])
        names = list(specs)

        def call(*tensors: Any) -> Any:
            return _ordered(function(**dict(zip(names, tensors, strict=True))))

        return _of_specs(specs, call)
    raise UsageError(
        f"{what}: its signatures are {', '.join(signatures)}, and none is serving_default; save the"
        " model with the one to compile"
    )


def _of_keras(model: Any) -> _Signature:
    import tensorflow

    names = _distinct(_keras_name(tensor) for tensor in model.inputs)
    structure = model.input

    def call(*tensors: Any) -> Any:
        return model(tensorflow.nest.pack_sequence_as(structure, tensors), training=False)

    specs = dict(zip(names, model.inputs, strict=True))
    outputs = tuple(_distinct(getattr(model, "output_names", ())))
    return _of_specs(specs, call, outputs)


def _keras_name(tensor: Any) -> str:
    """The name that an input was given, else that of its layer."""
    history = getattr(tensor, "_keras_history", None)
    operation = getattr(history, "operation", None)
    return str(operation.name if operation is not None else tensor.name)


def _by_position(specs: Sequence[Any]) -> dict[str, Any]:
    names = [str(spec.name or f"input_{at}") for at, spec in enumerate(specs)]
    return dict(zip(_distinct(names), specs, strict=True))


def _of_specs(
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


def _of_example(source: Any, example: object, what: str) -> _Signature:
    """Of what has no signature: the example's, with the names of the arguments."""
    import tensorflow

    if example is None:
        raise UsageError(
            f"{what}: it does not say the shapes of its inputs; pass example_inputs, or let the"
            " factory return (model, inputs)"
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

    return _of_specs(arrays, call)


def _numpy_dtype(dtype: Any, name: str) -> np.dtype[Any]:
    try:
        return graph_dtype(dtype.name)
    except Unimportable as reason:
        raise UsageError(f"input {name!r} is {reason}; only numbers can be inputs") from reason


def _by_name(example: object, names: Sequence[str], what: str) -> dict[str, Any]:
    if example is None:
        return {}
    if isinstance(example, Mapping):
        found = {str(name): item for name, item in example.items()}
    else:
        several = list(example) if isinstance(example, (tuple, list)) else [example]
        found = dict(zip(names, several, strict=False))
    strange = sorted(found.keys() - set(names))
    if strange:
        raise UsageError(
            f"{what}: there is no input {', '.join(strange)}; it has {', '.join(names)}"
        )
    return found


def _tensors(specs: Sequence[Any], names: Sequence[str], example: Mapping[str, Any]) -> list[Any]:
    """The example, and for inputs without one random numbers or zeros."""
    import tensorflow

    random, found = np.random.default_rng(0), list[Any]()
    for spec, name in zip(specs, names, strict=True):
        array = example.get(name)
        if array is None:
            is_float = spec.dtype.is_floating
            array = random.standard_normal(spec.shape) if is_float else np.zeros(spec.shape)
        found.append(tensorflow.cast(tensorflow.convert_to_tensor(array), spec.dtype))
    return found


def _flat(tree: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the results by name."""
    import tensorflow

    if isinstance(tree, Mapping):
        return {str(name): tensorflow.convert_to_tensor(item) for name, item in tree.items()}
    leaves = [tensorflow.convert_to_tensor(item) for item in tensorflow.nest.flatten(tree)]
    if len(names) != len(leaves):
        several = [f"output_{at}" for at in range(len(leaves))]
        names = ["output"] if len(leaves) == 1 else several
    return dict(zip(names, leaves, strict=True))


def _ordered(items: Mapping[str, Any]) -> dict[str, Any]:
    """By name, numbers in it by their size: a signature of a SavedModel has another order each time
    that it is loaded."""

    def place(name: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdigit() else (-1, part) for part in NUMBERS.split(name)]

    return {name: items[name] for name in sorted(items, key=place)}


def _distinct(names: Any) -> list[str]:
    seen: Counter[str] = Counter()
    found: list[str] = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def _plain_name(name: str) -> str:
    """A name as TensorFlow allows it for an argument."""
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
    given: dict[str, Operand] = {}
    for name, spec, tensor in zip(names, specs, frozen.inputs, strict=True):
        shape = tuple(spec.shape.as_list())
        builder.input(name, shape, graph_dtype(spec.dtype.name))
        given[tensor.name] = Operand(name, shape)
    fetches = [graph.get_tensor_by_name(tensor.name) for tensor in frozen.outputs]
    results = reader.run(given, fetches)
    if reader.refused:
        text = ", ".join(f"{name} ({count})" for name, count in sorted(reader.refused.items()))
        raise UsageError(
            f"{what}: ops of TensorFlow that cannot be imported, and how often each is there:"
            f" {text}; write them with others"
        )
    return builder.finish(
        {name: reader.named(item) for name, item in zip(outputs, results, strict=True)}
    )
