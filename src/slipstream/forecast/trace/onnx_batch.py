"""Numbers for the dimensions that an ONNX model leaves open: its batch, images, sequences."""

# The stubs of onnx leave some of their types open.
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
    """What numbers open dimensions get.

    Args:
        samples: of the micro-batch, at least 1.
        shape: of one sample of the first input; None: as the model says.
        tokens: of the one dimension that is then still open; None: none may be.
    """

    samples: int
    shape: Sequence[int] | None = None
    tokens: int | None = None


def bind(
    inputs: Sequence[ValueInfoProto], batch: Batch
) -> tuple[dict[str, tuple[int, ...]], Fraction]:
    """Returns shapes of a model's inputs, and how many times those are needed for the samples.

    Args:
        inputs: of the model; the first dimension of the first is that of the batch.
        batch: numbers for open dimensions.

    Raises:
        UsageError: a dimension stays open, or what is said does not go with the inputs.
    """
    if batch.samples < 1:
        raise UsageError(f"samples are {batch.samples}; a micro-batch has at least 1")
    shapes = {item.name: _dimensions(item) for item in inputs}
    numbers, times = _of_batch(shapes, batch.samples)
    if batch.shape is not None:
        numbers |= _of_shape(shapes, batch.shape)
    still = {d for shape in shapes.values() for d in shape if isinstance(d, str)} - set(numbers)
    if batch.tokens is not None:
        if len(still) != 1:
            many = ", ".join(sorted(still)) or "none"
            raise UsageError(
                f"{batch.tokens} tokens are for one open dimension; the model has {many}"
            )
        numbers[still.pop()] = batch.tokens
    for name, shape in shapes.items():
        for place in shape:
            if isinstance(place, str) and place not in numbers:
                raise UsageError(
                    f"input {name!r} is of shape {shape}: {place!r} is open; "
                    "say the shape of a sample, or the tokens of a sequence"
                )
    bound = {
        name: tuple(d if isinstance(d, int) else numbers[d] for d in shape)
        for name, shape in shapes.items()
    }
    return bound, times


def _dimensions(item: ValueInfoProto) -> tuple[int | str, ...]:
    """Returns numbers, and names of open dimensions; without one they are named by their place."""
    kind = item.type.tensor_type
    if not item.type.HasField("tensor_type") or not kind.HasField("shape"):
        raise UsageError(f"input {item.name!r} has no shape, not even how many dimensions")
    return tuple(
        d.dim_value
        if d.dim_value > 0
        else d.dim_param or (f"{item.name}[{axis}]" if axis else _BATCH)
        for axis, d in enumerate(kind.shape.dim)
    )


def _of_batch(
    shapes: Mapping[str, tuple[int | str, ...]], samples: int
) -> tuple[dict[str, int], Fraction]:
    """Returns the numbers of dimensions that the samples give, and how many times all counts."""
    first = next((shape[0] for shape in shapes.values() if shape), 1)
    given = samples if isinstance(first, str) else first
    # Exporters call the first dimension of each input by another name, if they are not told.
    numbers = {shape[0]: given for shape in shapes.values() if shape and isinstance(shape[0], str)}
    return numbers, Fraction(samples, given)


def _of_shape(shapes: Mapping[str, tuple[int | str, ...]], wanted: Sequence[int]) -> dict[str, int]:
    """Returns the numbers of dimensions that the shape of a sample gives."""
    name, shape = next(iter(shapes.items()), ("", ()))
    own = shape[1:]
    fits = len(own) == len(wanted) and all(
        isinstance(mine, str) or mine == given for mine, given in zip(own, wanted, strict=True)
    )
    if not fits:
        raise UsageError(f"a sample of shape {tuple(wanted)}: input {name!r} is of shape {shape}")
    return {mine: given for mine, given in zip(own, wanted, strict=True) if isinstance(mine, str)}
