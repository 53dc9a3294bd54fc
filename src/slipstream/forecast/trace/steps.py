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
class TensorType:
    """The shape and type of a value of a graph.

    Args:
        shape: Sizes of all dimensions, as numbers.
        dtype: Name of the element type, such as "float32".
        times: Samples divided by the batch of the graph, for values that depend on inputs
            (default 1).
        fixed: Whether no input of the model changes the value.
    """

    shape: tuple[int, ...]
    dtype: str
    times: Fraction = Fraction(1)
    fixed: bool = False

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.ceil(math.prod(self.shape) * self.times)

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return self.elements * (_FLOATS.get(self.dtype) or np.dtype(self.dtype).itemsize)

    @property
    def is_float(self) -> bool:
        """Whether the value can have a gradient."""
        return self.dtype in _FLOATS


class Back(enum.Enum):
    """The work in the backward pass of an operator."""

    COMPUTES = "computes"  # an operator that makes the gradients of its inputs
    PASSES = "passes"  # nothing if sizes agree, otherwise a sum or a copy
    NARROWS = "narrows"  # nothing: gradients of inputs are parts of the output's gradient


@dataclass(frozen=True, slots=True)
class Term:
    """A product and the names of its factors; "" is a factor that the operator itself makes."""

    product: Product
    left: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardStep:
    """An operator of a forward pass.

    Args:
        name: Name of the operator in PyTorch.
        module: Path of the module that runs it.
        kind: Kind, which decides the share of the device's peak rates that it reaches.
        terms: Products that it computes.
        inputs: Names of its inputs; the factors of its products come last.
        outputs: Names of its outputs.
        saved: Inputs and outputs that its backward pass reads.
        back: Work of its backward pass.
        view: Whether it only makes another view of its first input.
        moved: Bytes that it reads and writes (default None: all inputs and outputs).
    """

    name: str
    module: str
    kind: OperatorKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    terms: tuple[Term, ...] = ()
    saved: tuple[str, ...] = ()
    back: Back = Back.COMPUTES
    view: bool = False
    moved: int | None = None

    @property
    def of(self) -> str:
        """Name of the value whose dtype is the dtype of the computation."""
        return self.terms[0].left if self.terms else self.outputs[0]
