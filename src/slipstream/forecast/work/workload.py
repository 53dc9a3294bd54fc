"""Computation of one training step on one device, as a list of operators.

A workload is traced from the model (`slipstream.forecast.trace`). A workload depends neither on a
framework nor on a device; time and memory are computed from the workload.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class OperatorKind(enum.Enum):
    """Class of operators that reach a similar share of a device's peak rates."""

    PRODUCT = "product"  # products of matrices
    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"  # convolutions with few channels per group
    ATTENTION = "attention"  # one fused kernel
    NORM = "norm"  # norms, softmax and losses, which read their input more than once
    MEMORY = "memory"  # all others, such as sums, activations, pooling and copies
    GATHER = "gather"  # lookups of embedding rows


class TrainingPhase(enum.Enum):
    """Phase of a step in which an operator runs."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Product:
    """Product of matrices (batch, m, k) and (batch, k, n), or a convolution in the same form.

    Args:
        batch: Number of independent products: heads, or groups of a convolution.
        m: Number of rows: samples, tokens or pixels.
        n: Number of columns: output features.
        k: Length of the summed dimension.
        window: Number of pixels in the window of a convolution of stride 1, such as 9 for 3x3 or 7
            for 1x7 (default 1: no convolution of stride 1).
        fill: Share of the product that a fused kernel computes; 0.5 for causal attention (default
            1.0).
        odd: Whether the row stride of an operand or of the result is odd, so that matrix units
            cannot read several elements at once (default False).
    """

    batch: int
    m: int
    n: int
    k: int
    window: int = 1
    fill: float = 1.0
    odd: bool = False

    @property
    def flops(self) -> float:
        """Number of FLOPs; a multiplication and an addition count as two."""
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Operation that frameworks run as one kernel.

    Args:
        name: Name of the framework's operator.
        module: Path of the module that ran the operator; "" for the root.
        phase: Forward or backward pass.
        kind: Class of the operator, which determines what share of the device's peak the operator
            reaches.
        products: Matrix products of the operator; the backward pass of a convolution has two.
        reads: Indices (in `Workload.values`) of the values that the operator reads; reading a view
            of a tensor counts as reading the tensor.
        writes: Indices (in `Workload.values`) of the values that the operator writes.
        bytes_moved: Bytes that the operator reads and writes.
        dtype: Data type of the products, such as "float32" or "bfloat16".
    """

    name: str
    module: str
    phase: TrainingPhase
    kind: OperatorKind
    products: tuple[Product, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    bytes_moved: float
    dtype: str

    @property
    def flops(self) -> float:
        """Number of FLOPs of the matrix products; all other computation is not counted."""
        return sum(product.flops for product in self.products)


@dataclass(frozen=True, slots=True)
class TensorValue:
    """Tensor that operators read and write.

    Args:
        num_bytes: Size in bytes.
        born: Index of the operator that creates the tensor; -1 if it exists before the step.
        dies: Index of the operator before which the tensor is freed; -1 if it is never freed.
    """

    num_bytes: int
    born: int
    dies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedParameter:
    """Parameter of a model.

    Args:
        name: Name of the parameter in the framework.
        elements: Number of elements.
        num_bytes: Size in bytes.
        ready: Index of the operator that completes the parameter's gradient; -1 if there is none.
        value: Index (in `Workload.values`) of the tensor with the parameter (default -1: unknown).
    """

    name: str
    elements: int
    num_bytes: int
    ready: int
    value: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One forward and backward pass of a model.

    Args:
        name: Name of the model.
        samples: Number of samples in the traced batch.
        operators: Operators in order of execution.
        values: Tensors that the operators read and write.
        parameters: Parameters in the model's order.
        buffer_bytes: Bytes of buffers that the model stores and does not train.
    """

    name: str
    samples: int
    operators: tuple[Operator, ...]
    values: tuple[TensorValue, ...]
    parameters: tuple[TrainedParameter, ...]
    buffer_bytes: int

    @property
    def num_parameters(self) -> int:
        """Number of elements of all parameters."""
        return sum(parameter.elements for parameter in self.parameters)

    def flops(self, phase: TrainingPhase) -> float:
        """Return the FLOPs of the matrix products in a phase.

        Args:
            phase: Forward or backward pass.
        """
        return sum(op.flops for op in self.operators if op.phase is phase)

    def gradients(self) -> Sequence[TrainedParameter]:
        """Return the parameters with gradients, in the order in which gradients are completed."""
        trained = [parameter for parameter in self.parameters if parameter.ready >= 0]
        return sorted(trained, key=lambda parameter: parameter.ready)
