"""Division of matrix products among tensor-parallel ranks.

Products with weights are divided in pairs: the first product by its columns (output features), the
second by its summed dimension. Operators between the two products of a pair work on a share of the
heads or channels. After the second product of a pair, the ranks sum the results, once in the
forward pass and once in the backward pass. Operators outside the pairs, such as norms and additions
of replicated values, are not divided. With sequence parallelism, operators outside the pairs are
divided by tokens: ranks reduce-scatter the results of a pair and gather them before the next pair.
A reduce-scatter and a gather together send as many bytes as a sum.

Source: Shoeybi et al. 2019, "Megatron-LM", arXiv 1909.08053; Korthikanti et al. 2022, "Reducing
activation recomputation in large transformer models", arXiv 2205.05198, for sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TrainingPhase,
    Workload,
)


@dataclass(frozen=True, slots=True)
class Joint:
    """Sum of an operator's results over the tensor-parallel ranks.

    Args:
        after: Index of the operator whose result is summed.
        num_bytes: Size in bytes of the result that is summed.
    """

    after: int
    num_bytes: float


@dataclass(frozen=True, slots=True)
class DividedModel:
    """Workload of one tensor-parallel rank.

    Args:
        workload: Workload with divided operators, tensors and parameters.
        joints: Sums of results over the tensor-parallel ranks, in execution order.
        divided: Names of the parameters that the ranks divide.
        even: Whether at least one parameter is divided, and all ranks have the same number of
            heads.
    """

    workload: Workload
    joints: tuple[Joint, ...]
    divided: frozenset[str]
    even: bool


def divide(workload: Workload, ranks: int, *, sequence: bool = False) -> DividedModel:
    """Return the workload of one of several tensor-parallel ranks.

    Args:
        workload: Workload of the whole model.
        ranks: Number of tensor-parallel ranks; 1 leaves the workload unchanged.
        sequence: Whether operators outside the pairs of divided matrix products are divided by
            tokens (default False).
    """
    if ranks == 1:
        return DividedModel(workload, (), frozenset(), even=True)
    weights = divisible(workload)
    cut = _Cut(workload, weights, ranks, sequence=sequence)
    operators = tuple(cut.operator(index) for index in range(len(workload.operators)))
    values = tuple(
        replace(value, num_bytes=value.num_bytes // ranks)
        if index in cut.shares or index in cut.tokens
        else value
        for index, value in enumerate(workload.values)
    )
    parameters = tuple(
        replace(
            parameter, elements=parameter.elements // ranks, num_bytes=parameter.num_bytes // ranks
        )
        if parameter.value in cut.shares
        else parameter
        for parameter in workload.parameters
    )
    divided = replace(workload, operators=operators, values=values, parameters=parameters)
    names = frozenset(
        parameter.name for parameter in workload.parameters if parameter.value in cut.shares
    )
    return DividedModel(divided, tuple(cut.joints), names, even=bool(names) and cut.even)


class _Cut:
    """State of a division: the tensors that ranks divide, and the partial results yet to sum."""

    def __init__(
        self, workload: Workload, weights: frozenset[int], ranks: int, *, sequence: bool
    ) -> None:
        self.shares = set(weights)
        self.tokens: set[int] = set()
        self._tables = {
            operator.reads[0]
            for operator in workload.operators
            if operator.name == "embedding" and operator.reads[0] in weights
        }
        self._sequence = sequence
        self.joints: list[Joint] = []
        self.even = True
        self._workload = workload
        self._ranks = ranks
        self._parts: dict[int, int] = {}

    def operator(self, index: int) -> Operator:
        """Return the operator that one rank runs; the method must be called in index order."""
        operator = self._workload.operators[index]
        adds_parts = operator.name == "add" and all(v in self._parts for v in operator.reads)
        if adds_parts:
            self._parts.update(dict.fromkeys(operator.writes, index))
            for value in operator.reads:
                del self._parts[value]
            return operator
        self._join(operator)
        if operator.name == "embedding_dense_backward":
            return self._of_table(operator)
        if self.shares.isdisjoint(operator.reads):
            return self._by_tokens(operator)
        products = tuple(self._product(operator, product) for product in operator.products)
        if self._sums(operator):
            self._parts.update(dict.fromkeys(operator.writes, index))
        else:
            self.shares.update(operator.writes)
        moved = operator.bytes_moved * self._fraction(operator)
        return replace(operator, products=products, bytes_moved=moved)

    def _join(self, operator: Operator) -> None:
        """Sum the partial results that an operator is about to read."""
        for value in operator.reads:
            after = self._parts.pop(value, None)
            if after is not None:
                size = float(self._workload.values[value].num_bytes)
                self.joints.append(Joint(after, size))
                if self._sequence:
                    self.tokens.add(value)

    def _of_table(self, operator: Operator) -> Operator:
        """Divide the gradient of an embedding table if the ranks divide the table."""
        values = self._workload.values
        tables = {values[v].num_bytes for v in self._tables}
        if not any(values[value].num_bytes in tables for value in operator.writes):
            return operator
        self.shares.update(operator.writes)
        return replace(operator, bytes_moved=operator.bytes_moved * self._fraction(operator))

    def _by_tokens(self, operator: Operator) -> Operator:
        """Divide an operator by tokens if its inputs are divided by tokens."""
        if operator.kind not in (OperatorKind.NORM, OperatorKind.MEMORY) or self.tokens.isdisjoint(
            operator.reads
        ):
            return operator
        largest = max(self._workload.values[v].num_bytes for v in operator.reads)
        for value in operator.writes:
            # Sums over tokens, such as the gradient of a norm's weight, are complete on each rank.
            if 4 * self._workload.values[value].num_bytes >= largest:
                self.tokens.add(value)
        return replace(operator, bytes_moved=operator.bytes_moved / self._ranks)

    def _sums(self, operator: Operator) -> bool:
        """Return whether a rank has only a part of an operator's result, to sum over the ranks."""
        if operator.name == "embedding":
            return True
        if operator.kind is not OperatorKind.PRODUCT or operator.products[0].batch > 1:
            return False
        return all(value in self.shares for value in operator.reads[-2:])

    def _product(self, operator: Operator, product: Product) -> Product:
        left, right = (value in self.shares for value in (operator.reads * 2)[-2:])
        if product.batch > 1 or operator.kind is not OperatorKind.PRODUCT:
            side = "batch"
        elif left and right:
            side = "k"
        else:
            side = "m" if left else "n"
        size: int = getattr(product, side)
        # Only heads must divide evenly; other sizes, such as a vocabulary, may be padded.
        self.even = self.even and (side != "batch" or size % self._ranks == 0)
        return replace(product, **{side: max(1, size // self._ranks)})

    def _fraction(self, operator: Operator) -> float:
        """Return the share of an operator's bytes that one rank reads and writes."""
        touched = [
            (v, self._workload.values[v].num_bytes) for v in operator.reads + operator.writes
        ]
        total = sum(size for _, size in touched)
        moved = sum(size / (self._ranks if v in self.shares else 1) for v, size in touched)
        return moved / total if total else 1.0


def divisible(workload: Workload) -> frozenset[int]:
    """Return the indices of the weights, with their casts, that tensor-parallel ranks can divide.

    Args:
        workload: Workload of the whole model.
    """
    graph = _Forward(workload)
    chosen: set[int] = set()
    taken: set[int] = set()
    for group in graph.groups():
        if not taken.isdisjoint(group):
            continue
        ends = graph.ends(group)
        if ends is not None:
            taken.update(ends)
            for index in (*group, *ends):
                chosen.update(graph.weights_of(index, bias=index in group))
    return frozenset(chosen | graph.tables(chosen))


class _Forward:
    """Forward pass as a graph: the readers of each tensor, and the products with weights."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._operators = [op for op in workload.operators if op.phase is TrainingPhase.FORWARD]
        self._weights = self._with_copies({parameter.value for parameter in workload.parameters})
        self._readers: dict[int, list[int]] = {}
        for index, operator in enumerate(self._operators):
            for value in operator.reads:
                self._readers.setdefault(value, []).append(index)

    def _with_copies(self, weights: set[int]) -> dict[int, int]:
        """Return a mapping from each weight, and each cast of a weight, to the weight."""
        originals = {value: value for value in weights}
        for operator in self._operators:
            if (
                len(operator.reads) == 1
                and operator.reads[0] in originals
                and not operator.products
            ):
                originals.update(dict.fromkeys(operator.writes, originals[operator.reads[0]]))
        return originals

    def groups(self) -> Iterable[tuple[int, ...]]:
        """Return the products with weights, grouped by the activations that they read."""
        groups: dict[int, list[int]] = {}
        for index, operator in enumerate(self._operators):
            if self._weighted(index):
                source = next(v for v in operator.reads[-2:] if v not in self._weights)
                groups.setdefault(source, []).append(index)
        return [tuple(group) for group in groups.values()]

    def weights_of(self, index: int, *, bias: bool) -> set[int]:
        """Return the weights that a product reads, and the parameters from which they were cast.

        Args:
            index: Index of the forward operator that computes the product.
            bias: Whether the result includes the bias of the product.
        """
        reads = self._operators[index].reads
        weights = {v for v in (reads if bias else reads[-2:]) if v in self._weights}
        roots = {self._weights[v] for v in weights}
        return weights | roots

    def tables(self, chosen: set[int]) -> set[int]:
        """Return the embedding tables that are as large as a divided weight, and their casts.

        An embedding table is divided by vocabulary, like the weight of the same size.
        """
        values = self._workload.values
        sizes = {values[value].num_bytes for value in chosen}
        read = {op.reads[0] for op in self._operators if op.name == "embedding"}
        tables = {v for v in read if v in self._weights and values[v].num_bytes in sizes}
        return tables | {self._weights[value] for value in tables}

    def _weighted(self, index: int) -> bool:
        operator = self._operators[index]
        if operator.kind is not OperatorKind.PRODUCT:
            return False
        return sum(value in self._weights for value in operator.reads[-2:]) == 1

    def ends(self, group: Sequence[int]) -> tuple[int, ...] | None:
        """Return the second products of a pair, or None if ranks cannot divide an operator between.

        Args:
            group: First products of the pair, which read the same activations.
        """
        shares: set[int] = set()
        for index in group:
            shares.update(self._operators[index].writes)
        last_products: set[int] = set()
        todo = sorted({reader for value in shares for reader in self._readers.get(value, ())})
        closed = False
        while todo:
            index = todo.pop(0)
            operator = self._operators[index]
            if self._weighted(index):
                last_products.add(index)
            elif operator.name.startswith("nll_loss"):
                closed = True
            elif self._divides(operator, shares):
                fresh = set(operator.writes) - shares
                shares |= fresh
                more = {reader for value in fresh for reader in self._readers.get(value, ())}
                todo = sorted({*todo, *more} - last_products)
            else:
                return None
        return tuple(sorted(last_products)) if last_products or closed else None

    def _divides(self, operator: Operator, shares: set[int]) -> bool:
        """Return whether an operator's inputs and outputs can be divided in the same way."""
        if operator.kind is OperatorKind.NORM and "softmax" not in operator.name:
            return False
        if operator.kind in (OperatorKind.GATHER, OperatorKind.CONVOLUTION):
            return False
        sizes = [self._workload.values[v].num_bytes for v in operator.reads if v in shares]
        others = [self._workload.values[v] for v in operator.reads if v not in shares]
        return all(value.born < 0 or 2 * value.num_bytes < min(sizes) for value in others)
