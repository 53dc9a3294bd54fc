"""The blocks of a model with their parameters and passes, which checkpoints and FSDP work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.forecast.work.blocks import names
from slipstream.forecast.work.workload import TrainingPhase, Workload


@dataclass(frozen=True, slots=True)
class Unit:
    """A module that a model repeats, as a transformer's blocks.

    Args:
        name: its path with the root's class in front, "GPT.blocks.3".
        parameters: its own, by index in the workload.
        forward: its operators in the forward pass.
        backward: those in the backward pass, from the first that reads what it kept or its
            parameters; empty if nothing does.
    """

    name: str
    parameters: tuple[int, ...]
    forward: range
    backward: range


def units(workload: Workload) -> tuple[Unit, ...]:
    """Returns the blocks of a model that `slipstream.forecast.work.blocks` finds, in the order in
    which they run.

    Args:
        workload: whose operators have their modules; any part of a model.
    """
    forward = num_forward(workload)
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names(workload.operators[:forward])):
        if name:
            places.setdefault(name, []).append(index)
    readers = readers_of(workload)
    found: list[Unit] = []
    end = 0
    for name, indices in places.items():
        span = range(indices[0], indices[-1] + 1)
        # A module that runs again among others stays with what is around it.
        if span.start >= end and len(span) == len(indices):
            found.append(_unit(workload, name, span, readers))
            end = span.stop
    return tuple(found)


def num_forward(workload: Workload) -> int:
    """Returns how many operators the forward pass has; all others come after them."""
    return sum(operator.phase is TrainingPhase.FORWARD for operator in workload.operators)


def readers_of(workload: Workload) -> Mapping[int, Sequence[int]]:
    """Returns the operators that read or write each value, in order."""
    found: dict[int, list[int]] = {}
    for index, operator in enumerate(workload.operators):
        for value in {*operator.reads, *operator.writes}:
            found.setdefault(value, []).append(index)
    return found


def made(workload: Workload, span: range) -> list[int]:
    """Returns the values that are born in a span of operators, in order."""
    return [
        value
        for index in span
        for value in workload.operators[index].writes
        if workload.values[value].born == index
    ]


def _unit(
    workload: Workload, name: str, forward: range, readers: Mapping[int, Sequence[int]]
) -> Unit:
    prefix = name.partition(".")[2] + "."
    own = [i for i, each in enumerate(workload.parameters) if each.name.startswith(prefix)]
    inner = {
        v for v in made(workload, forward) if not _given(readers.get(v, ()), workload, forward)
    }
    inner |= {workload.parameters[index].value for index in own}
    last = num_forward(workload)
    indices = [index for value in inner for index in readers.get(value, ()) if index >= last]
    backward = range(min(indices), max(indices) + 1) if indices else range(last, last)
    return Unit(name, tuple(own), forward, backward)


def _given(readers: Sequence[int], workload: Workload, forward: range) -> bool:
    """Says whether operators of the forward pass after a unit read a value of it."""
    return any(
        index >= forward.stop and workload.operators[index].phase is TrainingPhase.FORWARD
        for index in readers
    )
