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
    """An operator to append to a `Tape`, the list of recorded operators.

    Args:
        step: Forward operator: this operator itself, or the one whose gradients this one computes.
        name: Name of the operator.
        phase: Forward or backward pass.
        products: Matrix products that the operator computes (default: none).
        reads: Indices, in the result of `Tape.values`, of the memory that the operator reads.
        writes: Indices, in the result of `Tape.values`, of the memory that the operator writes.
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
    """Recorded operators, in the order in which they run. The class is not thread-safe.

    Args:
        tensors: Shape and dtype of each tensor of the model, by tensor name.

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
        """Return the index of a tensor's memory; a new tensor counts as made before the step."""
        if name not in self._indices:
            self._indices[name] = len(self._values)
            self._values.append((self._tensors[name].num_bytes, -1))
        return self._indices[name]

    def make(self, name: str) -> int:
        """Add memory for a named tensor that the next operator writes; return the memory index."""
        self._indices[name] = self.fresh(name)
        return self._indices[name]

    def view(self, name: str, base: str) -> None:
        """Record that one tensor is a view of another, and shares its memory."""
        self._indices[name] = self.value(base)

    def fresh(self, name: str) -> int:
        """Add memory of the size of a named tensor, and return the index of the memory."""
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
        """Return the size of each piece of memory, and the operators that make and free it.

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
