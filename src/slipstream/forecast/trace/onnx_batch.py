"""Sizes for the open dimensions of an ONNX model, such as its batch and sequence length."""

# The stubs of onnx leave some types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from onnx import ValueInfoProto

from slipstream.errors import UsageError

_BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Batch:
    """Sizes for a model's open dimensions, which have a name but no size in the ONNX file.

    Args:
        samples: Number of samples in the micro-batch, at least 1.
        shape: Shape of one sample of the first input; None for the shape in the ONNX file.
        tokens: Size of the only dimension that `samples` and `shape` leave open; None if no
            dimension is left open.
    """

    samples: int
    shape: Sequence[int] | None = None
    tokens: int | None = None


def bind(
    inputs: Sequence[ValueInfoProto], batch: Batch
) -> tuple[dict[str, tuple[int, ...]], Fraction]:
    """Return each input's shape by name, and `batch.samples` divided by the file's batch size.

    Args:
        inputs: Inputs of the model; the first dimension of the first input is the batch.
        batch: Number of samples, and sizes for the model's other open dimensions.

    Raises:
        UsageError: A dimension stays open, or the batch contradicts the inputs.
    """
    if batch.samples < 1:
        raise UsageError(f"samples is {batch.samples}; a micro-batch has at least 1")
    shapes = {item.name: _dimensions(item) for item in inputs}
    numbers, times = _of_batch(shapes, batch.samples)
    if batch.shape is not None:
        numbers |= _of_shape(shapes, batch.shape)
    still = {d for shape in shapes.values() for d in shape if isinstance(d, str)} - set(numbers)
    if batch.tokens is not None:
        if len(still) != 1:
            many = ", ".join(sorted(still)) or "none"
            raise UsageError(
                f"tokens is {batch.tokens}, which sets one open dimension; the model has {many}"
            )
        numbers[still.pop()] = batch.tokens
    for name, shape in shapes.items():
        for place in shape:
            if isinstance(place, str) and place not in numbers:
                raise UsageError(
                    f"input {name!r} has shape {shape}, in which {place!r} is open; "
                    "set the shape of a sample, or the tokens of a sequence"
                )
    bound = {
        name: tuple(d if isinstance(d, int) else numbers[d] for d in shape)
        for name, shape in shapes.items()
    }
    return bound, times


def _dimensions(item: ValueInfoProto) -> tuple[int | str, ...]:
    """Return the size of each dimension of an input; an open dimension has a name as its size."""
    kind = item.type.tensor_type
    if not item.type.HasField("tensor_type") or not kind.HasField("shape"):
        raise UsageError(
            f"input {item.name!r} has no shape: not even the number of its dimensions is known"
        )
    return tuple(
        d.dim_value
        if d.dim_value > 0
        else d.dim_param or (f"{item.name}[{axis}]" if axis else _BATCH)
        for axis, d in enumerate(kind.shape.dim)
    )


def _of_batch(
    shapes: Mapping[str, tuple[int | str, ...]], samples: int
) -> tuple[dict[str, int], Fraction]:
    """Return the sizes of open batch dimensions, and `samples` divided by the file's batch size."""
    first = next((shape[0] for shape in shapes.values() if shape), 1)
    size = samples if isinstance(first, str) else first
    # Exporters name the first dimension of each input differently unless the user names it.
    numbers = {shape[0]: size for shape in shapes.values() if shape and isinstance(shape[0], str)}
    return numbers, Fraction(samples, size)


def _of_shape(shapes: Mapping[str, tuple[int | str, ...]], sample: Sequence[int]) -> dict[str, int]:
    """Return the sizes of the open dimensions that the shape of a sample determines, by name."""
    name, shape = next(iter(shapes.items()), ("", ()))
    dimensions = shape[1:]
    fits = len(dimensions) == len(sample) and all(
        isinstance(mine, str) or mine == size for mine, size in zip(dimensions, sample, strict=True)
    )
    if not fits:
        raise UsageError(f"shape is {tuple(sample)}, but input {name!r} has shape {shape}")
    return {
        mine: size for mine, size in zip(dimensions, sample, strict=True) if isinstance(mine, str)
    }
