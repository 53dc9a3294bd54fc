"""Operators of a forward pass, from which those of the backward pass follow."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from slipstream.forecast.work.workload import OperatorKind, Product

_FLOATS = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a value of a graph is.

    Args:
        shape: with numbers for all dimensions.
        dtype: as "float32".
        times: samples by the batch that the graph is made for, of what depends on inputs.
        fixed: no input of the model changes it.
    """

    shape: tuple[int, ...]
    dtype: str
    times: Fraction = Fraction(1)
    fixed: bool = False

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return math.ceil(math.prod(self.shape) * self.times)

    @property
    def num_bytes(self) -> int:
        """Bytes that it occupies."""
        return self.elements * (_FLOATS.get(self.dtype) or np.dtype(self.dtype).itemsize)

    @property
    def is_float(self) -> bool:
        """Whether it can have a gradient."""
        return self.dtype in _FLOATS


class Back(enum.Enum):
    """What the backward pass of an operator is."""

    COMPUTES = "computes"  # an operator that makes the gradients of its inputs
    PASSES = "passes"  # nothing where sizes agree, a sum or a copy elsewhere
    NARROWS = "narrows"  # nothing: gradients of inputs are parts of that of the output


@dataclass(frozen=True, slots=True)
class Term:
    """A product and the values that it multiplies; "": one that the operator itself makes."""

    product: Product
    left: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator of a forward pass.

    Args:
        name: as PyTorch calls such a one.
        module: path of the module that runs it.
        kind: for its share of the device's peaks.
        terms: its products.
        inputs: values by name; those that are multiplied come last.
        outputs: values by name.
        kept: inputs and outputs that its backward pass reads.
        back: what that is.
        view: it makes nothing, only another view of its first input.
        moved: bytes, of what it touches; None: all inputs and outputs.
    """

    name: str
    module: str
    kind: OperatorKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    terms: tuple[Term, ...] = ()
    kept: tuple[str, ...] = ()
    back: Back = Back.COMPUTES
    view: bool = False
    moved: int | None = None

    @property
    def of(self) -> str:
        """The value whose dtype is that in which it computes."""
        return self.terms[0].left if self.terms else self.outputs[0]
