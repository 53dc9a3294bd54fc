"""Steps of a model: JAX primitives or TensorFlow ops. Rules convert steps to ONNX operators.

A rule is a function that adds the ONNX operators for one kind of step. Broadcasting is delayed:
operands are in compact form, in which an axis along which elements would be repeated has length 1.
Element-wise operators read compact operands directly. For operators that are not element-wise, the
elements along an axis of length 1 are repeated first.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from slipstream.infer.graph.graph import Array
from slipstream.infer.importers import moves
from slipstream.infer.importers.builder import Builder

HALVES = ("bfloat16", "float16")  # dtypes that the graph computes in float32
PLAIN = (*("bool", "float32", "int8", "int16", "int32", "int64"), *("uint8", "uint16", "uint32"))


class Unimportable(Exception):  # noqa: N818 - a reason that readers collect, not a failure
    """Reason why a step has no counterpart in ONNX, in a few words."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Value of a model that a step reads or computes.

    Args:
        value: Array if the value is known at import time, else the name of a value in the graph.
            The array or the value is in compact form.
        shape: Full shape, to which the compact value can be broadcast.
    """

    value: Any
    shape: tuple[int, ...]

    @property
    def is_known(self) -> bool:
        """Whether the value is an array that is known at import time."""
        return not isinstance(self.value, str)


@dataclass(frozen=True, slots=True)
class Step:
    """Operands and parameters of a JAX primitive or a TensorFlow op.

    Args:
        b: Builder of the graph.
        params: Parameters by name, as the framework stores them.
        operands: Operands in the framework's order.
        shape: Shape of the first result; () if the framework leaves it open.
        dtype: Dtype of the first result in the graph.
        num_results: Number of results.
    """

    b: Builder
    params: Mapping[str, Any]
    operands: Sequence[Operand]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    num_results: int = 1

    @property
    def count(self) -> int:
        """Number of operands."""
        return len(self.operands)

    def compact(self, at: int) -> str:
        """Return the name of an operand in compact form."""
        operand = self.operands[at]
        if isinstance(operand.value, str):
            return operand.value
        return self.b.constant("constant", plain(operand.value))

    def full(self, at: int) -> str:
        """Return the name of an operand in its full shape."""
        return moves.expand(self.b, self.compact(at), self.operands[at].shape)

    def wide(self, at: int) -> str:
        """Return the name of an operand in compact form, in a dtype that every engine supports."""
        return moves.widened(self.b, self.compact(at))

    def wide_full(self, at: int) -> str:
        """Return the name of an operand in full shape, in a dtype that every engine supports."""
        return moves.widened(self.b, self.full(at))

    def array(self, at: int) -> Array | None:
        """Return the elements of a known operand in compact form, or None.

        The result is None if the operand is computed at run time.
        """
        operand = self.operands[at]
        return plain(operand.value) if operand.is_known else None

    def whole_array(self, at: int) -> Array | None:
        """Return the elements of a known operand in the operand's full shape, or None.

        The result is None if the operand is computed at run time.
        """
        array = self.array(at)
        return None if array is None else np.broadcast_to(array, self.operands[at].shape)

    def known(self, at: int) -> Array:
        """Return the elements of a known operand in the operand's full shape.

        Raises:
            Unimportable: If the operand is computed at run time.
        """
        array = self.whole_array(at)
        if array is None:
            raise Unimportable(f"with operand {at} computed")
        return array

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter as a string; TensorFlow stores strings as bytes."""
        value = self.params.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


Rule: TypeAlias = "Callable[[Step], str | list[str]]"


def graph_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype that imported graphs use in place of a framework's dtype.

    Raises:
        Unimportable: If imported graphs have no such dtype.
    """
    name = str(dtype)
    if name in HALVES or name == "float64":
        return np.dtype(np.float32)
    if name not in PLAIN:
        raise Unimportable(f"of {name}")
    return np.dtype(name)


def plain(value: Any) -> Array:
    """Convert a framework's array to a NumPy array of a dtype that imported graphs use."""
    array = np.asarray(value)
    return np.asarray(array.astype(graph_dtype(array.dtype)))


def choose(b: Builder, condition: str, yes: str, no: str) -> str:
    """Add a Where node, or nodes And and Or if the values are bools."""
    if b.dtype(yes) != np.bool_:
        return b.add("Where", condition, yes, no)
    return b.add("Or", b.add("And", condition, yes), b.add("And", b.add("Not", condition), no))
