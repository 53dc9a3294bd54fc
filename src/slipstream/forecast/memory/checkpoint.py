"""Activations that are computed again: a workload as it runs with checkpoints at its blocks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from slipstream.forecast.memory.units import Unit, made, readers_of, units
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    TensorValue,
    TrainingPhase,
    Workload,
)


def checkpointed(workload: Workload, *, selective: bool = False, lazy: bool = False) -> Workload:
    """Returns a workload in which each repeated module keeps nothing but what it reads.

    Its operators run again, as part of the backward pass, before the first of the module's backward
    pass. What other modules read of it stays as it was. A model without such modules is returned
    as it is.

    Source: Chen, Xu, Zhang, Guestrin 2016, "Training deep nets with sublinear memory cost", arXiv
    1604.06174; `torch.utils.checkpoint`; Liang et al. 2024, "TorchTitan", arXiv 2410.06511, for
    what is kept.

    Args:
        workload: of a model that has no checkpoints yet.
        selective: results of attention are kept, and those of every second product. Products here
            may be several of a framework, so it is half of each result.
        lazy: of these only what the backward pass reads is kept.
    """
    again = sorted((u for u in units(workload) if u.backward), key=lambda u: u.backward.start)
    if not again:
        return workload
    kept: frozenset[int] = frozenset()
    if selective:
        workload, kept = _halved(workload, again, lazy=lazy)
    return _Again(workload, again, kept).workload()


def _halved(
    workload: Workload, chosen: Sequence[Unit], *, lazy: bool
) -> tuple[Workload, frozenset[int]]:
    """Cuts results of products in units in two values; returns those that are kept as well."""
    values = list(workload.values)
    rest: dict[int, int] = {}
    kept: set[int] = set()
    for unit in chosen:
        for operator in workload.operators[unit.forward.start : unit.forward.stop]:
            if operator.kind not in (OperatorKind.PRODUCT, OperatorKind.ATTENTION):
                continue
            for value in operator.writes:
                read_later = values[value].dies > unit.backward.start
                if operator.kind is OperatorKind.PRODUCT:
                    half = values[value].num_bytes // 2
                    rest[value] = len(values)
                    values.append(replace(values[value], num_bytes=half))
                    values[value] = replace(values[value], num_bytes=half)
                if read_later or not lazy:
                    kept.add(value)

    def whole(indices: Sequence[int]) -> tuple[int, ...]:
        return (*indices, *(rest[value] for value in indices if value in rest))

    operators = tuple(
        replace(operator, reads=whole(operator.reads), writes=whole(operator.writes))
        for operator in workload.operators
    )
    return replace(workload, operators=operators, values=tuple(values)), frozenset(kept)


class _Again:
    """Puts the operators of units in front of their backward passes.

    Args:
        workload: without checkpoints.
        chosen: units in the order of their backward passes.
        kept: values of theirs that are not computed again.
    """

    def __init__(self, workload: Workload, chosen: Sequence[Unit], kept: frozenset[int]) -> None:
        self._old = workload
        self._kept = kept
        self._chosen = chosen
        self._starts = [unit.backward.start for unit in chosen]
        # Operators that were put in before the first, the second, ... of the backward passes.
        self._added = [0]
        for unit in chosen:
            self._added.append(self._added[-1] + len(unit.forward))
        self._values = [
            TensorValue(value.num_bytes, self._moved(value.born), self._death(value.dies))
            for value in workload.values
        ]
        self._readers = readers_of(workload)
        # Where a value is that is computed again, from which old operator on.
        self._copies: dict[int, tuple[int, int]] = {}
        self._needed: dict[int, int] = {}

    def workload(self) -> Workload:
        """Returns the workload with what runs again."""
        copies = [self._run_again(place) for place in range(len(self._chosen))]
        operators: list[Operator] = []
        for index, operator in enumerate(self._old.operators):
            place = bisect_left(self._starts, index)
            while place < len(self._starts) and self._starts[place] == index:
                operators += copies[place]
                place += 1
            operators.append(self._with_copies(operator, index))
        parameters = [replace(p, ready=self._moved(p.ready)) for p in self._old.parameters]
        return replace(
            self._old,
            operators=tuple(operators),
            values=tuple(self._values),
            parameters=tuple(parameters),
        )

    def _moved(self, index: int) -> int:
        """Where an operator is now."""
        return index + self._added[bisect_right(self._starts, index)]

    def _death(self, index: int) -> int:
        """Where a value dies now that died before an operator: before what was put in there."""
        return index + self._added[bisect_left(self._starts, index)]

    def _run_again(self, place: int) -> list[Operator]:
        """Returns a unit's operators once more, on values of their own."""
        unit = self._chosen[place]
        shift = unit.backward.start + self._added[place] - unit.forward.start
        own: dict[int, int] = {}
        for value in made(self._old, unit.forward):
            if value in self._kept:
                # Nobody knows whether it is needed before all of the unit has run again.
                self._keep_until(value, unit.forward.stop + shift)
                continue
            own[value] = len(self._values)
            self._values.append(self._copy(value, unit, shift))
            self._copies[value] = (own[value], unit.backward.start)
        operators = self._old.operators[unit.forward.start : unit.forward.stop]
        for index, operator in zip(unit.forward, operators, strict=True):
            for value in {*operator.reads, *operator.writes} - own.keys():
                self._keep_until(value, index + shift + 1)
        return [
            replace(
                operator,
                phase=TrainingPhase.BACKWARD,
                reads=tuple(own.get(value, value) for value in operator.reads),
                writes=tuple(own.get(value, value) for value in operator.writes),
            )
            for operator in operators
        ]

    def _copy(self, index: int, unit: Unit, shift: int) -> TensorValue:
        """Returns a value as it lives when it is computed again, and ends the first of it."""
        value = self._old.values[index]
        if 0 <= value.dies <= unit.forward.stop:
            return replace(value, born=value.born + shift, dies=value.dies + shift)
        readers = self._readers[index]
        if value.dies <= unit.backward.start:
            last = readers[bisect_left(readers, unit.forward.stop) - 1]
            return replace(value, born=value.born + shift, dies=last + shift + 1)
        # The first is still read by what follows in the forward pass, and what that kept.
        after = bisect_left(readers, unit.forward.stop)
        before = bisect_left(readers, unit.backward.start)
        end = self._moved(readers[before - 1]) + 1 if before > after else unit.forward.stop
        end = max(end, self._needed.get(index, 0))
        self._values[index] = replace(self._values[index], dies=end)
        return replace(value, born=value.born + shift, dies=self._death(value.dies))

    def _keep_until(self, index: int, dies: int) -> None:
        """Lets an activation live until the operator before an index has read it again."""
        value = self._values[index]
        self._needed[index] = max(dies, self._needed.get(index, 0))
        if 0 <= value.dies < dies:
            self._values[index] = replace(value, dies=dies)

    def _with_copies(self, operator: Operator, index: int) -> Operator:
        def where(value: int) -> int:
            copy, start = self._copies.get(value, (value, 0))
            return copy if index >= start else value

        return replace(
            operator,
            reads=tuple(map(where, operator.reads)),
            writes=tuple(map(where, operator.writes)),
        )
