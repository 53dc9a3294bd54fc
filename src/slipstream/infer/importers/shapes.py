"""Fixing the dimensions that a model leaves open."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph, Value
from slipstream.infer.graph.onnx_file import infer_shapes

Shapes = Mapping[str, tuple[int, ...]]


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse a string such as `image=1,3,224,224` into the name of an input and its dimensions.

    Raises:
        UsageError: If the string has another form.
    """
    name, equals_sign, sizes = text.rpartition("=")
    parts = sizes.split(",") if sizes else []
    if (
        not equals_sign
        or not name
        or not parts
        or not all(part.strip().isdecimal() for part in parts)
    ):
        raise UsageError(f"the shape is {text!r}; allowed: name=1,3,224,224")
    return name, tuple(int(part) for part in parts)


def fix_shapes(graph: Graph, shapes: Shapes) -> tuple[Graph, tuple[str, ...]]:
    """Fix all dimensions of a graph's inputs; return the new graph, and notes about assumptions.

    Args:
        graph: Graph with open dimensions; it is not changed.
        shapes: Input shapes, by name. If a shape gives a size to a named dimension, all dimensions
            of that name get this size. The first dimension of an input is the batch: if no shape
            fixes it, it becomes 1.

    Raises:
        UsageError: If an input does not exist, if a shape contradicts the model, or if a dimension
            remains open.
    """
    sizes = _named_sizes(graph, shapes)
    result = graph.copy()
    notes: list[str] = []
    for name, value in graph.inputs.items():
        shape = shapes.get(name) or _filled(name, value, sizes, notes)
        result.inputs[name] = Value(value.dtype, shape)
    if all(value.fixed is not None for value in graph.inputs.values()) and not shapes:
        return result, ()
    result.values = {}
    kinds = {name: Value(graph.value(name).dtype, None) for name in graph.outputs}
    result.values = {name: kind for name, kind in kinds.items() if name not in result.inputs}
    return infer_shapes(result), tuple(notes)


def _named_sizes(graph: Graph, shapes: Shapes) -> dict[str, int]:
    """Check the given shapes; return the sizes that they give to named dimensions."""
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in graph.inputs:
            raise UsageError(f"the model has no input {name!r}; it has {', '.join(graph.inputs)}")
        declared = graph.inputs[name].shape
        if declared is None:
            continue
        fits = len(declared) == len(shape) and all(
            not isinstance(size, int) or size == requested
            for size, requested in zip(declared, shape, strict=True)
        )
        if not fits:
            raise UsageError(
                f"input {name!r} has the shape {_text(declared)}, not {_text(shape)}; only"
                " dimensions that the model leaves open can be chosen"
            )
        sizes.update(
            {
                size: requested
                for size, requested in zip(declared, shape, strict=True)
                if isinstance(size, str)
            }
        )
    return sizes


def _filled(name: str, value: Value, sizes: Mapping[str, int], notes: list[str]) -> tuple[int, ...]:
    if value.shape is None:
        raise UsageError(f"the model does not say the shape of {name!r}; add --shape {name}=1,...")
    dims = [sizes.get(size, size) if isinstance(size, str) else size for size in value.shape]
    if dims and not isinstance(dims[0], int):
        dims[0] = 1
        notes.append(f"the batch size of {name!r} is open; it is set to 1 (--shape changes it)")
    shape = tuple(size for size in dims if isinstance(size, int))
    if len(shape) != len(dims):
        example = ",".join(str(size) if isinstance(size, int) else "224" for size in dims)
        raise UsageError(
            f"input {name!r} has the shape {_text(value.shape)}, but every dimension must be"
            f" known; add --shape {name}={example}"
        )
    return shape


def _text(shape: tuple[int | str | None, ...]) -> str:
    return "(" + ", ".join("?" if size is None else str(size) for size in shape) + ")"
