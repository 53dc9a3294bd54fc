"""What one step of a model computes on one device, operator by operator, as plain values.

A workload is traced from the model (`slipstream.forecast.trace`) and read by everything else: time,
memory and strategies are functions of it. It knows no framework and no device.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class OperatorKind(enum.Enum):
    """Classes of operators that reach like shares of a device's peaks."""

    PRODUCT = "product"  # of matrices
    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"  # convolutions of few channels per group
    ATTENTION = "attention"  # fused
    NORM = "norm"  # what reads its input more than once: norms, softmax, losses
    MEMORY = "memory"  # whatever else reads and writes: sums, activations, pooling, copies
    GATHER = "gather"  # rows of embeddings


class TrainingPhase(enum.Enum):
    """When an operator runs."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices, (batch, m, k) by (batch, k, n); a convolution as one.

    Args:
        batch: independent products: heads, or groups of a convolution.
        m: rows: samples, tokens or pixels.
        n: columns: outputs.
        k: what is summed over.
        window: pixels under the window of a convolution of stride 1: 9 for 3x3, 7 for 1x7; else 1.
        fill: share of it that a fused kernel computes, 0.5 where tokens see those before them.
        odd: rows of an operand or of the result are an odd number of numbers apart, so that matrix
            units cannot read several at once.
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
        """FLOPs, a multiplication and an addition being two."""
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A kernel, or what frameworks run as one.

    Args:
        name: of the framework's operator.
        module: path of the module that ran it; "" for the root.
        phase: forward or backward.
        kind: for its share of the device's peaks.
        products: that it is made of; two in the backward pass of a convolution.
        reads: values, by index in the workload; views are their bases.
        writes: values.
        bytes_moved: read and written, of what it touches.
        dtype: that products multiply, as "float32" or "bfloat16".
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
        """FLOPs of its products; what others compute is not counted."""
        return sum(product.flops for product in self.products)


@dataclass(frozen=True, slots=True)
class TensorValue:
    """Memory that operators read and write.

    Args:
        num_bytes: that it occupies.
        born: index of the operator that makes it; -1: before the step.
        dies: index of the operator before which it is freed; -1: never.
    """

    num_bytes: int
    born: int
    dies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedParameter:
    """What is trained.

    Args:
        name: as the framework calls it.
        elements: numbers in it.
        num_bytes: of them.
        ready: index of the operator after which its gradient is whole; -1: has none.
        value: that holds it; -1: not known.
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
        name: of the model.
        samples: in the batch that was traced.
        operators: in the order in which they run.
        values: memory that they read and write.
        parameters: in the model's order.
        buffer_bytes: of what the model keeps and does not train.
    """

    name: str
    samples: int
    operators: tuple[Operator, ...]
    values: tuple[TensorValue, ...]
    parameters: tuple[TrainedParameter, ...]
    buffer_bytes: int

    @property
    def num_parameters(self) -> int:
        """Numbers that are trained."""
        return sum(parameter.elements for parameter in self.parameters)

    def flops(self, phase: TrainingPhase) -> float:
        """Returns the FLOPs of the products of a phase.

        Args:
            phase: forward or backward.
        """
        return sum(op.flops for op in self.operators if op.phase is phase)

    def gradients(self) -> Sequence[TrainedParameter]:
        """Returns the parameters that have gradients, in the order in which those are ready."""
        trained = [parameter for parameter in self.parameters if parameter.ready >= 0]
        return sorted(trained, key=lambda parameter: parameter.ready)
