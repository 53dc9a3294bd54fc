"""TensorFlow's lists of tensors; recurrent layers fill such lists in loops.

At import time it is known which values a list contains, so no list remains in the graph.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from slipstream.infer.importers import moves
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.step import Operand, Unimportable, plain


@dataclass(frozen=True, slots=True)
class TensorList:
    """Elements of a list; an element that is not set is None."""

    items: tuple[Operand | None, ...]


def _listed(operand: Operand) -> TensorList:
    assert isinstance(operand.value, TensorList)
    return operand.value


def _number(operand: Operand) -> int:
    if not operand.is_known:
        raise Unimportable("at a computed position")
    return int(np.asarray(operand.value).reshape(()))


def _operand(items: Sequence[Operand | None]) -> Operand:
    return Operand(TensorList(tuple(items)), ())


def named(b: Builder, operand: Operand) -> str:
    """Return the name of an operand in the graph; a known operand becomes a constant."""
    if isinstance(operand.value, str):
        return operand.value
    return b.constant("constant", plain(operand.value))


def _reserved(b: Builder, operands: Sequence[Operand]) -> Operand:
    del b
    return _operand([None] * _number(operands[1]))


def _of_tensor(b: Builder, operands: Sequence[Operand]) -> Operand:
    tensor = operands[0]
    length, *sizes = tensor.shape
    if tensor.is_known:
        return _operand([Operand(row, tuple(sizes)) for row in np.asarray(tensor.value)])
    rows: list[Operand] = []
    for at in range(length):
        row = moves.cut(b, tensor.value, [at, *(0 for _ in sizes)], [at + 1, *sizes])
        rows.append(Operand(moves.reshape(b, row, sizes), tuple(sizes)))
    return _operand(rows)


def _item(b: Builder, operands: Sequence[Operand]) -> Operand:
    del b
    item = _listed(operands[0]).items[_number(operands[1])]
    if item is None:
        raise Unimportable("of an element that was not set")
    return item


def _with_item(b: Builder, operands: Sequence[Operand]) -> Operand:
    del b
    items = list(_listed(operands[0]).items)
    items[_number(operands[1])] = operands[2]
    return _operand(items)


def _stacked(b: Builder, operands: Sequence[Operand]) -> Operand:
    items = [item for item in _listed(operands[0]).items if item is not None]
    if not items or len(items) != len(_listed(operands[0]).items):
        raise Unimportable("of elements that were not set")
    shape = items[0].shape
    rows = [moves.reshape(b, named(b, item), [1, *shape]) for item in items]
    return Operand(moves.concatenate(b, rows, 0), (len(items), *shape))


def _length(b: Builder, operands: Sequence[Operand]) -> Operand:
    del b
    return Operand(np.int32(len(_listed(operands[0]).items)), ())


ListRule: TypeAlias = Callable[[Builder, Sequence[Operand]], Operand]

LISTS: dict[str, ListRule] = {
    "TensorListFromTensor": _of_tensor,
    "TensorListGetItem": _item,
    "TensorListLength": _length,
    "TensorListReserve": _reserved,
    "TensorListSetItem": _with_item,
    "TensorListStack": _stacked,
}
