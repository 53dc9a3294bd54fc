"""Division of the experts of sparse (mixture-of-experts) layers among neighbouring replicas.

Each of e ranks stores a share of the experts and runs these experts on the tokens of all e ranks.
Before a sparse layer, each token is sent to the rank that stores the token's expert; after the
layer, the expert's result is sent back.

Source: Lepikhin et al. 2020, "GShard", arXiv 2006.16668.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TrainingPhase,
    Workload,
)


@dataclass(frozen=True, slots=True)
class DividedExperts:
    """Workload of one of the ranks that divide the experts.

    Args:
        workload: Workload with one share of the experts.
        names: Names of the parameters that the ranks divide.
        moves: Bytes of tokens that each rank sends to all other ranks, by the index of the operator
            that needs or makes the tokens.
    """

    workload: Workload
    names: frozenset[str]
    moves: dict[int, float]


def count(workload: Workload) -> int:
    """Return the number of experts of a sparse layer, or 1 if the model has no sparse layers.

    Args:
        workload: Workload of the whole model.
    """
    weights = with_copies(
        workload.operators, {parameter.value for parameter in workload.parameters}
    )
    counts = [op.products[0].batch for op in workload.operators if _multiplies(op, weights)]
    return min(counts, default=1)


def with_copies(operators: Sequence[Operator], values: set[int]) -> dict[int, int]:
    """Return a mapping from each tensor, and from each copy or cast of a tensor, to the original.

    Args:
        operators: Operators in order of execution.
        values: Indices of the original tensors.
    """
    originals = {value: value for value in values}
    for operator in operators:
        if len(operator.reads) == 1 and operator.reads[0] in originals and not operator.products:
            originals.update(dict.fromkeys(operator.writes, originals[operator.reads[0]]))
    return originals


def share(workload: Workload, ranks: int) -> DividedExperts:
    """Return the workload of one of several ranks that divide the experts.

    Args:
        workload: Workload of the whole model, or of a tensor-parallel rank.
        ranks: Number of ranks, a divisor of the number of experts; 1 leaves the workload unchanged.
    """
    if ranks == 1:
        return DividedExperts(workload, frozenset(), {})
    weights = with_copies(
        workload.operators, {parameter.value for parameter in workload.parameters}
    )
    rows = {
        op.module: op.products[0]
        for op in workload.operators
        if op.phase is TrainingPhase.FORWARD and _multiplies(op, weights)
    }
    mine = _modules(workload, rows)
    shares = _shares(workload, list(mine), weights)
    operators = list(workload.operators)
    for index, module in mine.items():
        operators[index] = _share(workload, operators[index], rows[module], shares, ranks)
    values = tuple(
        replace(value, num_bytes=value.num_bytes // ranks) if index in shares else value
        for index, value in enumerate(workload.values)
    )
    parameters = tuple(
        replace(
            parameter, elements=parameter.elements // ranks, num_bytes=parameter.num_bytes // ranks
        )
        if parameter.value in shares
        else parameter
        for parameter in workload.parameters
    )
    changed = replace(workload, operators=tuple(operators), values=values, parameters=parameters)
    names = frozenset(
        parameter.name for parameter in workload.parameters if parameter.value in shares
    )
    return DividedExperts(changed, names, _moves(workload, mine, shares))


def _multiplies(operator: Operator, weights: dict[int, int]) -> bool:
    """Return whether a forward operator multiplies each expert's tokens by the expert's weight."""
    if operator.kind is not OperatorKind.PRODUCT or operator.phase is not TrainingPhase.FORWARD:
        return False
    return operator.products[0].batch > 1 and any(v in weights for v in operator.reads)


def _modules(workload: Workload, rows: dict[str, Product]) -> dict[int, str]:
    """Return the sparse layer of each operator that computes one matrix product per expert.

    The keys of the result are operator indices. Autograd does not record the modules of operators
    in the backward pass. An operator in the backward pass therefore belongs to the layer of a
    forward operator that reads one of the same tensors.
    """
    layer_of: dict[int, str] = {}
    owner: dict[int, str] = {}
    for index, operator in enumerate(workload.operators):
        if operator.kind is not OperatorKind.PRODUCT:
            continue
        module: str | None = operator.module
        if operator.phase is TrainingPhase.BACKWARD:
            module = next((owner[v] for v in operator.reads if v in owner), None)
        if module in rows and operator.products[0].batch == rows[module].batch:
            layer_of[index] = module
            if operator.phase is TrainingPhase.FORWARD:
                owner.update(dict.fromkeys(operator.reads, module))
    return layer_of


def _shares(workload: Workload, mine: Sequence[int], weights: dict[int, int]) -> set[int]:
    """Return the indices of expert weights, of their gradients, and of all copies of either."""
    read = {v for i in mine for v in workload.operators[i].reads if v in weights}
    roots = {weights[value] for value in read}
    expert_weights = {value for value, root in weights.items() if root in roots}
    sizes = {workload.values[value].num_bytes for value in expert_weights}
    made = {
        value
        for i in mine
        for value in workload.operators[i].writes
        if workload.operators[i].phase is TrainingPhase.BACKWARD
        and workload.values[value].num_bytes in sizes
    }
    return expert_weights | set(with_copies(workload.operators, made))


def _share(
    workload: Workload,
    operator: Operator,
    rows: Product,
    shares: set[int],
    ranks: int,
) -> Operator:
    """Return one rank's part of an operator that computes one matrix product per expert.

    The rank has the fraction 1 / `ranks` of the experts, but `ranks` times as many tokens for each.
    """

    def of(product: Product) -> Product:
        is_sum = product.m != rows.m
        name = "k" if is_sum else "m"
        sizes = {"batch": product.batch // ranks, name: getattr(product, name) * ranks}
        return replace(product, **sizes)

    saved = sum(
        workload.values[v].num_bytes * (1 - 1 / ranks)
        for v in (*operator.reads, *operator.writes)
        if v in shares
    )
    moved = max(0.0, operator.bytes_moved - saved)
    return replace(operator, products=tuple(map(of, operator.products)), bytes_moved=moved)


def _moves(workload: Workload, mine: dict[int, str], shares: set[int]) -> dict[int, float]:
    """Return the bytes of tokens that a rank sends for each sparse layer, by operator index.

    Tokens are sent before the first product of a layer and after its last product, in the forward
    and in the backward pass.
    """
    ends: dict[tuple[str, TrainingPhase], tuple[int, int]] = {}
    for index, module in mine.items():
        key = module, workload.operators[index].phase
        ends[key] = ends.get(key, (index, index))[0], index
    num_bytes: dict[int, float] = {}
    for first, last in ends.values():
        for index, values in (
            (first, workload.operators[first].reads),
            (last, workload.operators[last].writes),
        ):
            tokens = [workload.values[v].num_bytes for v in values if v not in shares]
            num_bytes[index] = num_bytes.get(index, 0.0) + float(max(tokens, default=0))
    return num_bytes
