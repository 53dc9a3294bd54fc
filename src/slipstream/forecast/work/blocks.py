"""The repeated blocks of a model, which pipelines, gathers of FSDP and checkpoints follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from slipstream.forecast.work.workload import Operator, TrainingPhase

# Lists of modules with a smaller share of the model's FLOPs than this are not blocks.
_SHARE = 0.05


def blocks(operators: Sequence[Operator]) -> tuple[int, list[int]]:
    """Returns how many repeated blocks there are, and for each operator the block that it is in.

    What comes before the first block is in the first one, what comes after one in that one. An
    operator of the backward pass is where what it reads was last read in the forward pass.

    Args:
        operators: of a workload, forward and then backward.
    """
    forward = [operator for operator in operators if operator.phase is TrainingPhase.FORWARD]
    numbers: dict[str, int] = {}
    places: list[int] = []
    for name in names(forward):
        if name:
            numbers.setdefault(name, len(numbers))
        places.append(numbers[name] if name else (places or [0])[-1])
    count = max(1, len(numbers))
    return count, places + _backward(operators, places, count - 1)


def names(operators: Sequence[Operator]) -> list[str]:
    """Returns the path of the block that each operator belongs to; "": none.

    A module is a block if its path ends in a number, as those of `nn.ModuleList` and
    `nn.Sequential` do; the outermost are taken, but not one that holds most of a model in numbered
    parts.

    Args:
        operators: of a forward pass.
    """
    paths = [list(_numbered(operator.module)) for operator in operators]
    counts = Counter(path for chain in paths for path in chain)
    inside = Counter(path for chain in paths for path in chain[:-1])
    most = len(operators) / 2
    found = [
        next((p for p in chain if counts[p] <= most or inside[p] <= counts[p] / 2), "")
        for chain in paths
    ]
    flops: Counter[str] = Counter()
    for name, operator in zip(found, operators, strict=True):
        flops[_list_of(name)] += int(operator.flops)
    least = _SHARE * sum(flops.values())
    return [name if flops[_list_of(name)] >= least else "" for name in found]


def _backward(operators: Sequence[Operator], places: Sequence[int], last: int) -> list[int]:
    """The block of each operator after the forward pass, from the last to the first."""
    forward = len(places)
    read_by: dict[int, int] = {}
    for operator, place in zip(operators, places, strict=False):
        read_by.update(dict.fromkeys(operator.reads, place))
    found: list[int] = []
    current = last
    for operator in operators[forward:]:
        current = min([current, *(read_by[v] for v in operator.reads if v in read_by)])
        found.append(current)
    return found


def _numbered(path: str) -> Iterable[str]:
    """The module and those around it whose path ends in a number, the outermost first."""
    parts = path.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            yield ".".join(parts[: index + 1])


def _list_of(name: str) -> str:
    return name.rpartition(".")[0]
