"""Operators of a forward pass, from which the operators of the backward pass follow."""

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
    """The shape and element type of a tensor in a model's graph.

    Args:
        shape: Size of each dimension.
        dtype: Name of the element type, such as "float32".
        times: Factor by which the tensor is larger than `shape` (default 1). For a tensor that
            depends on the model's inputs, the factor is the number of samples of the micro-batch
            divided by the batch size in `shape`.
        fixed: Whether the tensor is independent of the model's inputs (default False).
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
        """Whether the element type is floating-point, so that the tensor can have a gradient."""
        return self.dtype in _FLOATS


class Back(enum.Enum):
    """The kind of work that an operator's backward pass does."""

    COMPUTES = "computes"  # an operator that makes the gradients of its inputs
    PASSES = "passes"  # nothing if sizes agree, otherwise a sum or a copy
    NARROWS = "narrows"  # nothing: gradients of inputs are parts of the output's gradient


@dataclass(frozen=True, slots=True)
class Term:
    """A matrix product and its factors' names; a factor that the operator itself computes is ""."""

    product: Product
    left: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardStep:
    """An operator of a forward pass.

    Args:
        name: Name of the operator in PyTorch.
        module: Path of the module that runs the operator.
        kind: Kind of the operator, which determines what share of a device's peak rates the
            operator reaches.
        terms: Matrix products that the operator computes (default: none).
        inputs: Names of the inputs; the factors of the products come last.
        outputs: Names of the outputs.
        saved: Names of inputs and outputs that the backward pass of the operator reads.
        back: Kind of work that the operator's backward pass does (default `COMPUTES`).
        view: Whether the operator only makes another view of its first input (default False).
        moved: Bytes that the operator reads and writes (default None: all inputs and outputs).
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
        """Name of the tensor whose element type is the type in which the operator computes."""
        return self.terms[0].left if self.terms else self.outputs[0]
