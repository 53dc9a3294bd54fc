"""Activation checkpoints: a workload whose blocks run again in the backward pass."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from slipstream.forecast.memory.units import RepeatedModule, made, readers_of, units
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    TensorValue,
    TrainingPhase,
    Workload,
)


def checkpointed(workload: Workload, *, selective: bool = False, lazy: bool = False) -> Workload:
    """Return a workload in which each repeated module keeps only its inputs.

    The operators of a module run again in the backward pass, before the first backward operator of
    the module. A value that the module passes to other modules stays in memory until these modules
    have read it for the last time. A model without repeated modules is returned unchanged.

    Source: Chen, Xu, Zhang, Guestrin 2016, "Training deep nets with sublinear memory cost", arXiv
    1604.06174; `torch.utils.checkpoint`; Liang et al. 2024, "TorchTitan", arXiv 2410.06511, for
    selective checkpoints.

    Args:
        workload: Workload of a model that has no checkpoints yet.
        selective: Whether to keep the results of attention and of every second matrix product
            (default False). One product of the workload may stand for several products of PyTorch,
            so the returned workload keeps half of the result of every product.
        lazy: Whether `selective` keeps only results that the backward pass reads (default False).
    """
    again = sorted((u for u in units(workload) if u.backward), key=lambda u: u.backward.start)
    if not again:
        return workload
    kept: frozenset[int] = frozenset()
    if selective:
        workload, kept = _halved(workload, again, lazy=lazy)
    return _Again(workload, again, kept).workload()


def _halved(
    workload: Workload, chosen: Sequence[RepeatedModule], *, lazy: bool
) -> tuple[Workload, frozenset[int]]:
    """Return a changed workload, and the indices of the values to keep in memory.

    In the changed workload, each matrix product writes its result as two values of half the size.
    """
    values = list(workload.values)
    second_halves: dict[int, int] = {}
    kept: set[int] = set()
    for unit in chosen:
        for operator in workload.operators[unit.forward.start : unit.forward.stop]:
            if operator.kind not in (OperatorKind.PRODUCT, OperatorKind.ATTENTION):
                continue
            for value in operator.writes:
                read_later = values[value].dies > unit.backward.start
                if operator.kind is OperatorKind.PRODUCT:
                    half = values[value].num_bytes // 2
                    second_halves[value] = len(values)
                    values.append(replace(values[value], num_bytes=half))
                    values[value] = replace(values[value], num_bytes=half)
                if read_later or not lazy:
                    kept.add(value)

    def whole(indices: Sequence[int]) -> tuple[int, ...]:
        return (*indices, *(second_halves[value] for value in indices if value in second_halves))

    operators = tuple(
        replace(operator, reads=whole(operator.reads), writes=whole(operator.writes))
        for operator in workload.operators
    )
    return replace(workload, operators=operators, values=tuple(values)), frozenset(kept)


class _Again:
    """A builder of a workload in which each unit's operators run again before its backward pass.

    Args:
        workload: Workload without checkpoints.
        chosen: Units in the order of their backward passes.
        kept: Values that stay in memory and are not computed again.
    """

    def __init__(
        self, workload: Workload, chosen: Sequence[RepeatedModule], kept: frozenset[int]
    ) -> None:
        self._old = workload
        self._kept = kept
        self._chosen = chosen
        self._starts = [unit.backward.start for unit in chosen]
        # Item i is the number of operators that are inserted for the first i units.
        self._added = [0]
        for unit in chosen:
            self._added.append(self._added[-1] + len(unit.forward))
        self._values = [
            TensorValue(value.num_bytes, self._moved(value.born), self._death(value.dies))
            for value in workload.values
        ]
        self._readers = readers_of(workload)
        # For each value that is computed again: the index of its copy, and the index in the old
        # workload of the first operator that uses the copy.
        self._copies: dict[int, tuple[int, int]] = {}
        # The index of the new operator until which each value must stay in memory.
        self._needed: dict[int, int] = {}

    def workload(self) -> Workload:
        """Return the workload with the repeated operators."""
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
        """Return the index in the new workload of an operator of the original workload."""
        return index + self._added[bisect_right(self._starts, index)]

    def _death(self, index: int) -> int:
        """Return the index of the operator in the new workload before which a value is freed.

        If repeated operators are inserted at `index`, the value is freed before these operators.

        Args:
            index: Index of the operator in the original workload before which the value is freed.
        """
        return index + self._added[bisect_left(self._starts, index)]

    def _run_again(self, place: int) -> list[Operator]:
        """Return copies of a unit's operators that work on new values."""
        unit = self._chosen[place]
        shift = unit.backward.start + self._added[place] - unit.forward.start
        copies: dict[int, int] = {}
        for value in made(self._old, unit.forward):
            if value in self._kept:
                # The value may be needed until the whole unit has run again.
                self._keep_until(value, unit.forward.stop + shift)
                continue
            copies[value] = len(self._values)
            self._values.append(self._copy(value, unit, shift))
            self._copies[value] = (copies[value], unit.backward.start)
        operators = self._old.operators[unit.forward.start : unit.forward.stop]
        for index, operator in zip(unit.forward, operators, strict=True):
            for value in {*operator.reads, *operator.writes} - copies.keys():
                self._keep_until(value, index + shift + 1)
        return [
            replace(
                operator,
                phase=TrainingPhase.BACKWARD,
                reads=tuple(copies.get(value, value) for value in operator.reads),
                writes=tuple(copies.get(value, value) for value in operator.writes),
            )
            for operator in operators
        ]

    def _copy(self, index: int, unit: RepeatedModule, shift: int) -> TensorValue:
        """Return a copy of a value, and free the original value earlier.

        The copy stands for the result of computing the value again.
        """
        value = self._old.values[index]
        if 0 <= value.dies <= unit.forward.stop:
            return replace(value, born=value.born + shift, dies=value.dies + shift)
        readers = self._readers[index]
        if value.dies <= unit.backward.start:
            last = readers[bisect_left(readers, unit.forward.stop) - 1]
            return replace(value, born=value.born + shift, dies=last + shift + 1)
        # Forward operators after the unit, and backward operators before those of the unit, still
        # read the original.
        after = bisect_left(readers, unit.forward.stop)
        before = bisect_left(readers, unit.backward.start)
        end = self._moved(readers[before - 1]) + 1 if before > after else unit.forward.stop
        end = max(end, self._needed.get(index, 0))
        self._values[index] = replace(self._values[index], dies=end)
        return replace(value, born=value.born + shift, dies=self._death(value.dies))

    def _keep_until(self, index: int, dies: int) -> None:
        """Keep an activation in memory until an operator that runs again has read it."""
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
