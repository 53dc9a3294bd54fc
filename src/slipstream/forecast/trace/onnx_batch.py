"""Numbers for the open dimensions of an ONNX model: its batch, images and sequences."""

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
    """Numbers for open dimensions.

    Args:
        samples: Number of samples in the micro-batch, at least 1.
        shape: Shape of one sample of the first input; None: the shape in the model.
        tokens: Number for the one dimension that is still open then; None: no dimension may be.
    """

    samples: int
    shape: Sequence[int] | None = None
    tokens: int | None = None


def bind(
    inputs: Sequence[ValueInfoProto], batch: Batch
) -> tuple[dict[str, tuple[int, ...]], Fraction]:
    """Return the shapes of a model's inputs, and how many times they are needed for all samples.

    Args:
        inputs: Inputs of the model; the first dimension of the first input is the batch.
        batch: Numbers for open dimensions.

    Raises:
        UsageError: If a dimension stays open, or the batch contradicts the inputs.
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
    """Return sizes, and names of open dimensions; nameless ones are named by position."""
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
    """Return the sizes of the dimensions of the batch, and the factor of all counts."""
    first = next((shape[0] for shape in shapes.values() if shape), 1)
    given = samples if isinstance(first, str) else first
    # Exporters name the first dimension of each input differently unless the user names it.
    numbers = {shape[0]: given for shape in shapes.values() if shape and isinstance(shape[0], str)}
    return numbers, Fraction(samples, given)


def _of_shape(shapes: Mapping[str, tuple[int | str, ...]], wanted: Sequence[int]) -> dict[str, int]:
    """Return the sizes of the dimensions that the shape of a sample fixes."""
    name, shape = next(iter(shapes.items()), ("", ()))
    own = shape[1:]
    fits = len(own) == len(wanted) and all(
        isinstance(mine, str) or mine == given for mine, given in zip(own, wanted, strict=True)
    )
    if not fits:
        raise UsageError(f"a sample of shape {tuple(wanted)}: input {name!r} is of shape {shape}")
    return {mine: given for mine, given in zip(own, wanted, strict=True) if isinstance(mine, str)}
