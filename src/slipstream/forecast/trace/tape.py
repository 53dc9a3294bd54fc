"""Operators as they are written down one after the other, and the memory that they touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.forecast.trace.steps import Step, Tensor
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TensorValue,
    TrainingPhase,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What an operator does.

    Args:
        step: that it belongs to.
        name: of the operator.
        phase: forward or backward.
        products: that it computes.
        reads: values.
        writes: values.
        moved: bytes.
    """

    step: Step
    name: str
    phase: TrainingPhase
    products: tuple[Product, ...] = ()
    reads: Sequence[int]
    writes: Sequence[int]
    moved: int


class Tape:
    """Operators in the order in which they run. Not for threads.

    Args:
        tensors: all values of the model by name.

    `operators` are those so far.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.operators: list[Operator] = []
        self._tensors = tensors
        # Bytes and first operator of each value; its last operator.
        self._values: list[tuple[int, int]] = []
        self._last: dict[int, int] = {}
        self._known: dict[str, int] = {}

    def value(self, name: str) -> int:
        """Returns the memory of a named value, which was there before if no operator made it."""
        if name not in self._known:
            self._known[name] = len(self._values)
            self._values.append((self._tensors[name].num_bytes, -1))
        return self._known[name]

    def make(self, name: str) -> int:
        """Returns memory for a named value, which the next operator makes."""
        self._known[name] = self.fresh(name)
        return self._known[name]

    def view(self, name: str, base: str) -> None:
        """Notes that a value is a view of another."""
        self._known[name] = self.value(base)

    def fresh(self, name: str) -> int:
        """Returns more memory of the size of a named value, which the next operator makes."""
        self._values.append((self._tensors[name].num_bytes, len(self.operators)))
        return len(self._values) - 1

    def write(self, entry: Entry) -> None:
        """Writes an operator down."""
        step = entry.step
        reads, writes = tuple(dict.fromkeys(entry.reads)), tuple(dict.fromkeys(entry.writes))
        self._last.update(dict.fromkeys((*reads, *writes), len(self.operators)))
        self.operators.append(
            Operator(
                name=entry.name,
                module=step.module,
                phase=entry.phase,
                kind=step.kind if entry.products or not step.terms else OperatorKind.MEMORY,
                products=entry.products,
                reads=reads,
                writes=writes,
                bytes_moved=float(entry.moved),
                dtype=self._tensors[step.of].dtype,
            )
        )

    def values(self, staying: set[int], to_the_end: set[int]) -> tuple[TensorValue, ...]:
        """Returns all memory, with when it is made and freed.

        Args:
            staying: values that outlive the step.
            to_the_end: values that live until its end.
        """
        found: list[TensorValue] = []
        for index, (size, born) in enumerate(self._values):
            dies = self._last.get(index, born) + 1
            if index in to_the_end:
                dies = len(self.operators)
            found.append(TensorValue(size, born, -1 if born < 0 or index in staying else dies))
        return tuple(found)
