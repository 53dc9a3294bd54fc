"""The repeated blocks of a model, which are the units of checkpoints and FSDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.forecast.work.blocks import names
from slipstream.forecast.work.workload import TrainingPhase, Workload


@dataclass(frozen=True, slots=True)
class RepeatedModule:
    """A module that a model repeats, such as a block of a transformer.

    Args:
        name: Path of the module, which begins with the class of the model, such as "GPT.blocks.3".
        parameters: Indices of the module's parameters in the workload.
        forward: Range of the module's operators in the forward pass.
        backward: Range from the first to the last operator after the forward pass that uses a
            parameter or an inner value of the module; empty if there are none. An inner value is
            created by the module and is not read by later modules in the forward pass.
    """

    name: str
    parameters: tuple[int, ...]
    forward: range
    backward: range


def units(workload: Workload) -> tuple[RepeatedModule, ...]:
    """Return the blocks that `slipstream.forecast.work.blocks` finds, in execution order.

    Args:
        workload: Workload of a model or of a part of it, such as a pipeline stage.
    """
    forward = num_forward(workload)
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names(workload.operators[:forward])):
        if name:
            places.setdefault(name, []).append(index)
    readers = readers_of(workload)
    modules: list[RepeatedModule] = []
    end = 0
    for name, indices in places.items():
        span = range(indices[0], indices[-1] + 1)
        # A module that runs several times, with other modules in between, is no unit.
        if span.start >= end and len(span) == len(indices):
            modules.append(_unit(workload, name, span, readers))
            end = span.stop
    return tuple(modules)


def num_forward(workload: Workload) -> int:
    """Return the number of forward operators; they precede all other operators."""
    return sum(operator.phase is TrainingPhase.FORWARD for operator in workload.operators)


def readers_of(workload: Workload) -> Mapping[int, Sequence[int]]:
    """Return the operators that read or write each value, in execution order.

    The result maps the index of a value to indices of operators.
    """
    readers: dict[int, list[int]] = {}
    for index, operator in enumerate(workload.operators):
        for value in {*operator.reads, *operator.writes}:
            readers.setdefault(value, []).append(index)
    return readers


def made(workload: Workload, span: range) -> list[int]:
    """Return the indices of the values that a range of operators creates, in execution order."""
    return [
        value
        for index in span
        for value in workload.operators[index].writes
        if workload.values[value].born == index
    ]


def _unit(
    workload: Workload, name: str, forward: range, readers: Mapping[int, Sequence[int]]
) -> RepeatedModule:
    prefix = name.partition(".")[2] + "."
    parameters = [
        i for i, parameter in enumerate(workload.parameters) if parameter.name.startswith(prefix)
    ]
    inner = {
        v
        for v in made(workload, forward)
        if not _is_read_after(readers.get(v, ()), workload, forward)
    }
    inner |= {workload.parameters[index].value for index in parameters}
    last = num_forward(workload)
    indices = [index for value in inner for index in readers.get(value, ()) if index >= last]
    backward = range(min(indices), max(indices) + 1) if indices else range(last, last)
    return RepeatedModule(name, tuple(parameters), forward, backward)


def _is_read_after(readers: Sequence[int], workload: Workload, forward: range) -> bool:
    """Return whether a forward operator that runs after a unit is among the readers of a value."""
    return any(
        index >= forward.stop and workload.operators[index].phase is TrainingPhase.FORWARD
        for index in readers
    )
