"""The repeated modules of a model, which checkpoints and FSDP work on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slipstream.forecast.workload import Operator, Phase, Workload

# Lists of modules with a smaller share of the model's FLOPs than this are not blocks.
_SHARE = 0.05


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
    """Returns the repeated modules of a model, in the order in which they run.

    A module is one if its path ends in a number, as those of `nn.ModuleList` and `nn.Sequential`
    do; the outermost are taken, but not one that holds most of a model in numbered parts.

    Args:
        workload: whose operators have their modules; any part of a model.
    """
    forward = num_forward(workload)
    names = _names(workload.operators[:forward])
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
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
    return sum(operator.phase is Phase.FORWARD for operator in workload.operators)


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


def _names(operators: Sequence[Operator]) -> list[str]:
    """The unit that each operator belongs to; "": none."""
    paths = [list(_numbered(operator.module)) for operator in operators]
    counts = Counter(path for chain in paths for path in chain)
    inside = Counter(path for chain in paths for path in chain[:-1])
    most = len(operators) / 2
    names = [
        next((p for p in chain if counts[p] <= most or inside[p] <= counts[p] / 2), "")
        for chain in paths
    ]
    flops: Counter[str] = Counter()
    for name, operator in zip(names, operators, strict=True):
        flops[_list_of(name)] += int(operator.flops)
    least = _SHARE * sum(flops.values())
    return [name if flops[_list_of(name)] >= least else "" for name in names]


def _numbered(path: str) -> Iterable[str]:
    """The module and those around it whose path ends in a number, the outermost first."""
    parts = path.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            yield ".".join(parts[: index + 1])


def _list_of(name: str) -> str:
    return name.rpartition(".")[0]


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
        index >= forward.stop and workload.operators[index].phase is Phase.FORWARD
        for index in readers
    )
