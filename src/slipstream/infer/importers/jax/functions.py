"""Importer of JAX functions, through their jaxprs.

JAX traces the function for its example inputs. JAX computes the results of equations that do not
depend on the inputs. Rules convert the equations that depend on the inputs to ONNX operators; each
primitive has its rule. Nested functions are inlined, and loops of known length are unrolled. For
the example inputs, the results of the graph are compared with those of the function.
"""

# The types of jax are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers.builder import Builder, distinct_names
from slipstream.infer.importers.jax.reader import JaxReader
from slipstream.infer.importers.proof import LEAST_DB, Proved, prove
from slipstream.infer.importers.step import Operand, plain

# Lowest signal-to-noise ratio in dB for functions that round to 16 bits; the graph does not round.
# Chosen by hand, not measured.
HALVED_DB = 20.0


def is_function(source: object) -> bool:
    """Return whether the object is callable and not a class, without importing JAX."""
    return callable(source) and not isinstance(source, type)


def import_function(function: Callable[..., Any], example_inputs: object, what: str) -> Proved:
    """Return the graph of a function, and how closely the results of both agree (in dB).

    Args:
        function: Pure function of arrays or trees of arrays, jitted or not. Parameters from the
            function's closure become constants.
        example_inputs: Array or jax.ShapeDtypeStruct; or several of them, as a sequence in the
            order of the arguments or as a dictionary by argument name. An argument may also be a
            tree of arrays.
        what: Name of the function in error messages.

    Raises:
        UsageError: If there is no example, if JAX cannot trace the function, if primitives cannot
            be imported (the message lists all of them), or if results of graph and function differ.
    """
    import jax
    from jax.extend.core import jaxpr_as_fun

    positional, named = _arguments(example_inputs, what)
    try:
        traced, result = jax.make_jaxpr(function, return_shape=True)(*positional, **named)
    except Exception as error:  # the function may raise anything
        raise UsageError(f"{what}: JAX cannot trace it: {error}") from error
    names = _input_names(function, positional, named)
    outputs = _output_names(result)
    graph, is_halved = _graph(traced, names, outputs, what)
    leaves = jax.tree_util.tree_leaves((positional, named))
    inputs = [_example(leaf) for leaf in leaves]
    expected = jaxpr_as_fun(traced)(*inputs)
    feeds = {name: plain(value) for name, value in zip(names, inputs, strict=True)}
    expected_by_name = {name: plain(value) for name, value in zip(outputs, expected, strict=True)}
    return prove(graph, feeds, expected_by_name, what, HALVED_DB if is_halved else LEAST_DB)


# ---- arguments ---------------------------------------------------------------------------------


def _arguments(example: object, what: str) -> tuple[list[Any], dict[str, Any]]:
    if example is None:
        raise UsageError(
            f"{what}: a JAX function needs an example of its inputs: pass example_inputs, arrays or"
            " jax.ShapeDtypeStruct, or let the factory return (function, inputs)"
        )
    if isinstance(example, Mapping):
        return [], {str(name): value for name, value in example.items()}
    return (list(example) if isinstance(example, (tuple, list)) else [example]), {}


def _example(leaf: Any) -> Any:
    """Return the array of an example input; for a ShapeDtypeStruct, make random floats or zeros."""
    import jax

    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.numpy.asarray(leaf)
    if not np.issubdtype(leaf.dtype, np.floating) and str(leaf.dtype) != "bfloat16":
        return jax.numpy.zeros(leaf.shape, leaf.dtype)
    random = np.random.default_rng(0).standard_normal(leaf.shape)
    return jax.numpy.asarray(random, leaf.dtype)


def _input_names(
    function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]
) -> list[str]:
    """Name each array after its argument and the path to the array in the argument's tree."""
    import jax

    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = []
    arguments = [
        parameters[at] if at < len(parameters) else f"input_{at}" for at in range(len(positional))
    ]
    pairs = [*zip(arguments, positional, strict=True), *sorted(named.items())]
    return distinct_names(
        _path_name(name, path)
        for name, tree in pairs
        for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]
    )


def _output_names(result: Any) -> list[str]:
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(result)[0]
    if len(leaves) == 1:
        return ["output"]
    if isinstance(result, Mapping):
        return distinct_names(_path_name("", path) for path, _ in leaves)
    return distinct_names(_path_name("output", path) for path, _ in leaves)


def _path_name(stem: str, path: Sequence[Any]) -> str:
    keys = [
        str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path
    ]
    return "_".join([stem, *keys] if stem else keys)


# ---- the graph ---------------------------------------------------------------------------------


def _graph(
    traced: Any, names: Sequence[str], outputs: Sequence[str], what: str
) -> tuple[Graph, bool]:
    """Return the graph, and whether JAX rounds some values to 16 bits where the graph does not."""
    builder = Builder("jax")
    reader = JaxReader(builder)
    inputs = [
        reader.input(name, variable.aval)
        for name, variable in zip(names, traced.jaxpr.invars, strict=True)
    ]
    consts = [Operand(value, np.shape(value)) for value in traced.consts]
    results = reader.run(traced.jaxpr, consts, inputs)
    if reader.refused:
        text = ", ".join(f"{name} ({count})" for name, count in sorted(reader.refused.items()))
        raise UsageError(
            f"{what}: these primitives of JAX cannot be imported (with their number of uses):"
            f" {text}; replace them by others"
        )
    named = [reader.named(operand) for operand in results]
    return builder.finish(dict(zip(outputs, named, strict=True))), reader.is_halved
