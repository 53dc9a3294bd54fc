"""One node of a graph while PyTorch records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.gpu.accelerator import torch_dtype
from slipstream.infer.graph.graph import Array, Graph, Node

Operator: TypeAlias = "Callable[[NodeCall], Any]"


@dataclass(frozen=True)
class NodeCall:
    """A node, with its inputs as values that PyTorch records.

    Args:
        graph: Graph of the node, with fixed shapes.
        node: Node to record.
        values: Recorded values by name.
        number: Dtype in which the graph's float32 numbers are computed.
    """

    graph: Graph
    node: Node
    values: Mapping[str, Any]
    number: torch.dtype

    @property
    def inputs(self) -> list[Any]:
        """The inputs that are present, in the node's order."""
        return [self.values[name] for name in self.node.inputs if name]

    @property
    def first(self) -> Any:
        """The first input."""
        return self.values[self.node.inputs[0]]

    @property
    def opset(self) -> int:
        """Version of ONNX's operators."""
        return self.graph.opsets.get("", 1)

    def has(self, at: int) -> bool:
        """Return whether the optional input at a position is present."""
        return at < len(self.node.inputs) and bool(self.node.inputs[at])

    def input(self, at: int) -> Any:
        """Return the input at a position, or None if it is absent."""
        return self.values[self.node.inputs[at]] if self.has(at) else None

    def constant(self, at: int) -> Array | None:
        """Return the constant at a position, or None if the input is absent.

        Raises:
            UnsupportedError: the input is computed.
        """
        if not self.has(at):
            return None
        array = self.graph.constants.get(self.node.inputs[at])
        if array is None:
            raise UnsupportedError(f"{self.title} needs a constant as its input {at}")
        return array

    def numbers(self, at: int, attribute: str = "") -> list[int] | None:
        """Return the integers of a constant input or of an attribute; None if both are absent.

        Older opsets have an attribute where newer ones have an input.
        """
        if self.has(at):
            constant = self.constant(at)
            assert constant is not None
            return [int(number) for number in np.atleast_1d(constant)]
        found = self.node.get(attribute) if attribute else None
        return None if found is None else [int(number) for number in np.atleast_1d(found)]

    def shape(self, at: int) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises:
            UnsupportedError: the shape is unknown before a run.
        """
        return self._shape(self.node.inputs[at])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return self._shape(self.node.output)

    def axis(self, default: int = 0, at: int = 0) -> int:
        """Return the attribute `axis` as a position in the shape of an input, 0 or more."""
        axis, rank = int(self.node.get("axis", default)), len(self.shape(at))
        return axis + rank if axis < 0 else axis

    def dtype(self, at: int = 0) -> torch.dtype:
        """Return the dtype in which an input is computed."""
        found = self.graph.value(self.node.inputs[at]).dtype
        return self.computed(np.dtype(np.float32) if found is None else found)

    def computed(self, dtype: np.dtype[Any]) -> torch.dtype:
        """Return the dtype in which values of a dtype are computed: float32 may be narrower."""
        return self.number if dtype == np.float32 else torch_dtype(dtype)

    @property
    def is_float(self) -> bool:
        """Whether the first input is a floating-point number."""
        return self.dtype().is_floating_point

    @property
    def title(self) -> str:
        """Operator and result of the node, for error messages."""
        return f"{self.node.op} ({self.node.output})"

    def refuse(self, reason: str) -> UnsupportedError:
        """Return an error that names the node."""
        return UnsupportedError(f"{self.title} is not computed by PyTorch here: {reason}")

    def _shape(self, name: str) -> tuple[int, ...]:
        shape = self.graph.shape(name)
        if shape is None:
            raise self.refuse(f"the size of {name} is known only after a run")
        return shape
