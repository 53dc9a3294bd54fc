"""A growing list of operators, and the memory that the operators read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.forecast.trace.steps import ForwardStep, TensorType
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TensorValue,
    TrainingPhase,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An operator to append to a tape.

    Args:
        step: Step of the forward pass to which the operator belongs.
        name: Name of the operator.
        phase: Forward or backward pass.
        products: Products that the operator computes.
        reads: Indices of the memory that the operator reads.
        writes: Indices of the memory that the operator writes.
        moved: Bytes that the operator reads and writes.
    """

    step: ForwardStep
    name: str
    phase: TrainingPhase
    products: tuple[Product, ...] = ()
    reads: Sequence[int]
    writes: Sequence[int]
    moved: int


class Tape:
    """Operators in the order in which they run. The class is not thread-safe.

    Args:
        tensors: Types of all values of the model, by name of the value.

    The attribute `operators` contains the operators that were appended so far.
    """

    def __init__(self, tensors: Mapping[str, TensorType]) -> None:
        self.operators: list[Operator] = []
        self._tensors = tensors
        # Size in bytes and first operator of each piece of memory; `_last` has the last operator.
        self._values: list[tuple[int, int]] = []
        self._last: dict[int, int] = {}
        self._indices: dict[str, int] = {}

    def value(self, name: str) -> int:
        """Return the index of a value's memory; memory that no operator makes predates the step."""
        if name not in self._indices:
            self._indices[name] = len(self._values)
            self._values.append((self._tensors[name].num_bytes, -1))
        return self._indices[name]

    def make(self, name: str) -> int:
        """Return the index of new memory for a named value that the next operator makes."""
        self._indices[name] = self.fresh(name)
        return self._indices[name]

    def view(self, name: str, base: str) -> None:
        """Record that a value is a view of another value."""
        self._indices[name] = self.value(base)

    def fresh(self, name: str) -> int:
        """Return the index of new memory that has the size of a named value."""
        self._values.append((self._tensors[name].num_bytes, len(self.operators)))
        return len(self._values) - 1

    def write(self, entry: Entry) -> None:
        """Append an operator."""
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
        """Return all pieces of memory, with the operators that make and free them.

        Args:
            staying: Indices of memory that outlives the step.
            to_the_end: Indices of memory that is freed at the end of the step.
        """
        memory: list[TensorValue] = []
        for index, (size, born) in enumerate(self._values):
            dies = self._last.get(index, born) + 1
            if index in to_the_end:
                dies = len(self.operators)
            memory.append(TensorValue(size, born, -1 if born < 0 or index in staying else dies))
        return tuple(memory)
