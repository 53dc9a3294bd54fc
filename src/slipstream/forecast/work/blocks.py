"""Repeated blocks of a model.

Pipeline stages, FSDP gathers and activation checkpoints consist of whole blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from slipstream.forecast.work.workload import Operator, TrainingPhase

# Minimum share of the model's FLOPs in a list of modules that count as blocks. In 44 published
# architectures, classifiers and other heads have at most 1.2 % (8.2 % only in AlexNet), and each
# list of blocks has at least 17 %.
_SHARE = 0.05


def blocks(operators: Sequence[Operator]) -> tuple[int, list[int]]:
    """Return the number of repeated blocks, and the index of the block of each operator.

    Operators before the first block belong to the first block; operators after a block belong to
    that block. An operator of the backward pass belongs to the block in which the forward pass last
    read the operator's inputs.

    Args:
        operators: Operators of a workload, first forward, then backward.
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
    """Return the path of each operator's block, or "" for an operator outside all blocks.

    A module is numbered if its path ends in a number, as in `nn.ModuleList` and `nn.Sequential`.
    The block of an operator is the outermost numbered module that contains the operator. A numbered
    module is not a block if it has more than half of all operators, and most of these are in
    numbered modules inside it; then the inner modules are the blocks. Numbered modules of a list
    with less than 5 % of the model's FLOPs are not blocks.

    Args:
        operators: Operators of a forward pass.
    """
    paths = [list(_numbered(operator.module)) for operator in operators]
    counts = Counter(path for chain in paths for path in chain)
    inside = Counter(path for chain in paths for path in chain[:-1])
    most = len(operators) / 2
    block_names = [
        next((p for p in chain if counts[p] <= most or inside[p] <= counts[p] / 2), "")
        for chain in paths
    ]
    flops: Counter[str] = Counter()
    for name, operator in zip(block_names, operators, strict=True):
        flops[_list_of(name)] += int(operator.flops)
    least = _SHARE * sum(flops.values())
    return [name if flops[_list_of(name)] >= least else "" for name in block_names]


def _backward(operators: Sequence[Operator], places: Sequence[int], last: int) -> list[int]:
    """Return the block index of each backward operator; the indices never increase."""
    forward = len(places)
    read_by: dict[int, int] = {}
    for operator, place in zip(operators, places, strict=False):
        read_by.update(dict.fromkeys(operator.reads, place))
    backward_places: list[int] = []
    current = last
    for operator in operators[forward:]:
        current = min([current, *(read_by[v] for v in operator.reads if v in read_by)])
        backward_places.append(current)
    return backward_places


def _numbered(path: str) -> Iterable[str]:
    """Yield each beginning of a module's path that ends in a number, the shortest first."""
    parts = path.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            yield ".".join(parts[: index + 1])


def _list_of(name: str) -> str:
    return name.rpartition(".")[0]
