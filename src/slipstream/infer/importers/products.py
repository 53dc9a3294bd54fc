"""Products of arrays whose axes have any order, computed by MatMul."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slipstream.infer.importers import moves
from slipstream.infer.importers.builder import Builder

Pairs = Sequence[tuple[int, int]]  # pairs of an axis of the left and an axis of the right operand


def contracted(b: Builder, left: str, right: str, summed: Pairs, shared: Pairs) -> str:
    """Multiply two values, and sum the products over pairs of axes, as `einsum` does.

    Args:
        summed: Pairs of axes over which products are summed. A pair consists of an axis of the left
            operand and an axis of the right operand.
        shared: Pairs of axes, in the same form, each of which becomes one axis of the result
            without a sum.

    Returns:
        Name of a value with the shared axes first, then the other axes of the left operand, then
        the other axes of the right operand.
    """
    sides = [
        _Side(b, name, [int(pair[at]) for pair in summed], [int(pair[at]) for pair in shared])
        for at, name in enumerate((left, right))
    ]
    # (A B)^T = B^T A^T: an operand whose summed axes are last needs no Transpose if it comes first.
    is_swapped = sides[1].is_left_already and not sides[0].is_left_already
    first, second = sides[::-1] if is_swapped else sides
    name = b.add("MatMul", first.as_left(), second.as_right())
    sizes = [*first.sizes(first.batch), *first.sizes(first.free), *second.sizes(second.free)]
    name = moves.reshape(b, name, sizes)
    if not is_swapped:
        return name
    num_batch, num_first = len(first.batch), len(first.free)
    order = [*range(num_batch), *range(num_batch + num_first, len(sizes))]
    return moves.transpose(b, name, [*order, *range(num_batch, num_batch + num_first)])


class _Side:
    """An operand of a product.

    An axis of the operand is a summed axis (`contract`), a shared axis (`batch`), or an axis of
    this operand alone (`free`).
    """

    def __init__(self, b: Builder, name: str, contract: list[int], batch: list[int]) -> None:
        self._b = b
        self._name = name
        self.contract = contract
        self.batch = batch
        rank = len(b.shape(name))
        self.free = [axis for axis in range(rank) if axis not in contract and axis not in batch]

    @property
    def is_left_already(self) -> bool:
        """Whether the summed axes already come after the free axes."""
        return self.free + self.contract == sorted(self.free + self.contract)

    def sizes(self, axes: Sequence[int]) -> list[int]:
        """Return the lengths of the given axes."""
        shape = self._b.shape(self._name)
        return [shape[axis] for axis in axes]

    def as_left(self) -> str:
        """Arrange the axes of a left operand: the shared, the free, then the summed axes.

        The free axes are merged into one axis, but stay separate if there are no shared axes.
        """
        name = moves.transpose(self._b, self._name, [*self.batch, *self.free, *self.contract])
        free = self.sizes(self.free)
        if self.batch or not free:
            free = [math.prod(free)]
        depth = math.prod(self.sizes(self.contract))
        return moves.reshape(self._b, name, [*self.sizes(self.batch), *free, depth])

    def as_right(self) -> str:
        """Arrange the axes of a right operand: the shared, the summed, then the free axes."""
        name = moves.transpose(self._b, self._name, [*self.batch, *self.contract, *self.free])
        depth, width = (math.prod(self.sizes(axes)) for axes in (self.contract, self.free))
        return moves.reshape(self._b, name, [*self.sizes(self.batch), depth, width])
