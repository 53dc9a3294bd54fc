"""JAX functions, through their jaxprs.

JAX traces the function for its example inputs; what does not depend on them is computed by JAX at
once, and every other equation becomes operators of ONNX by the rule of its primitive. Functions
within the function are put in their places, loops of a known length are unrolled. What comes out is
compared with what the function itself computes.
"""

# The types of jax are open in places.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.jax.reader import JaxReader
from slipstream.infer.importers.proof import LEAST_DB, Proved, prove
from slipstream.infer.importers.step import Operand, plain

HALVED_DB = 20.0  # signal to noise that rounding to bfloat16 may leave


def is_function(source: object) -> bool:
    """Tell whether the object is callable and no class; import nothing."""
    return callable(source) and not isinstance(source, type)


def import_function(function: Callable[..., Any], example_inputs: object, what: str) -> Proved:
    """Return the graph of a function.

    Args:
        function: pure, of arrays or trees of them; jitted or not. Parameters that it closes over
            become constants.
        example_inputs: an array or jax.ShapeDtypeStruct, a sequence in the order of the arguments
            or a dictionary by argument; trees of arrays where the arguments are such.
        what: Name of the function in errors.

    Raises UsageError where there is no example, where JAX cannot trace the function, for every
    primitive that cannot be imported, all at once, and where the graph computes something else.
    """
    import jax
    from jax.extend.core import jaxpr_as_fun

    positional, named = _arguments(example_inputs, what)
    try:
        traced, result = jax.make_jaxpr(function, return_shape=True)(*positional, **named)
    # The function may raise whatever it likes.
    except Exception as error:
        raise UsageError(f"{what}: JAX cannot trace it: {error}") from error
    names = _input_names(function, positional, named)
    outputs = _output_names(result)
    graph, is_halved = _graph(traced, names, outputs, what)
    leaves = jax.tree_util.tree_leaves((positional, named))
    inputs = [_example(leaf) for leaf in leaves]
    expected = jaxpr_as_fun(traced)(*inputs)
    feeds = {name: plain(value) for name, value in zip(names, inputs, strict=True)}
    right = {name: plain(value) for name, value in zip(outputs, expected, strict=True)}
    return prove(graph, feeds, right, what, HALVED_DB if is_halved else LEAST_DB)


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
    """An array of the leaf's shape: itself, or random numbers, or zeros for indices."""
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
    """Names of the leaves: that of the argument, and the way through its tree."""
    import jax

    try:
        found = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        found = []
    known = [found[at] if at < len(found) else f"input_{at}" for at in range(len(positional))]
    pairs = [*zip(known, positional, strict=True), *sorted(named.items())]
    return _distinct(
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
        return _distinct(_path_name("", path) for path, _ in leaves)
    return _distinct(_path_name("output", path) for path, _ in leaves)


def _path_name(stem: str, path: Sequence[Any]) -> str:
    keys = [
        str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path
    ]
    return "_".join([stem, *keys] if stem else keys)


def _distinct(names: Any) -> list[str]:
    seen: Counter[str] = Counter()
    found: list[str] = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


# ---- the graph ---------------------------------------------------------------------------------


def _graph(
    traced: Any, names: Sequence[str], outputs: Sequence[str], what: str
) -> tuple[Graph, bool]:
    """The graph, and whether numbers that JAX rounds to 16 bits are not rounded in it."""
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
            f"{what}: primitives of JAX that cannot be imported, and how often each is there:"
            f" {text}; write them with others"
        )
    named = [reader.named(operand) for operand in results]
    return builder.finish(dict(zip(outputs, named, strict=True))), reader.is_halved
