"""JAX's look-ups: gather and scatter of any form, slices at places that are computed, sorting."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.infer.importers import moves
from slipstream.infer.importers.step import Operand, Rule, Step, Unimportable, choose

# ---- gather and scatter -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _GatherWindows:
    """What gather takes at each place, and scatter puts there: a window of the operand.

    Args:
        step: the equation.
        axes: of the operand that an index says, first those with a column of the indices.
        dropped: of them, those that windows have not.
        sizes: of a window, along all axes of the operand.
        batching: pairs of an axis of the operand and the axis of the indices that it goes with.
    """

    step: Step
    axes: list[int]
    dropped: set[int]
    sizes: list[int]
    batching: list[tuple[int, int]]

    @property
    def rest(self) -> list[int]:
        """Axes that no index says: whole in each window."""
        return [axis for axis in range(len(self.sizes)) if axis not in self.axes]

    @property
    def wide(self) -> list[int]:
        """Axes with an index along which windows are longer than 1."""
        return [axis for axis in self.axes if self.sizes[axis] > 1]

    @property
    def batch(self) -> tuple[int, ...]:
        """How many windows there are, along the axes of the indices."""
        return self.step.operands[1].shape[:-1]

    @property
    def order(self) -> list[int]:
        """The operand's axes, those with an index first."""
        return [*self.axes, *self.rest]

    def columns(self) -> list[Operand]:
        """Return the int64 start of each window along each of `axes`."""
        step, b, indices = self.step, self.step.b, self.step.operands[1]
        found: list[Operand] = []
        known = step.whole_array(1)
        for at in range(indices.shape[-1]):
            if known is not None:
                found.append(Operand(known[..., at].astype(np.int64), self.batch))
                continue
            starts = [*(0 for _ in self.batch), at]
            name = moves.cut(b, step.full(1), starts, [*self.batch, at + 1])
            name = moves.cast(b, moves.reshape(b, name, self.batch), np.int64)
            found.append(Operand(name, self.batch))
        for _, axis in self.batching:
            shape = [1] * len(self.batch)
            shape[axis] = self.batch[axis]
            numbers = np.arange(self.batch[axis]).reshape(shape)
            found.append(Operand(np.broadcast_to(numbers, self.batch), self.batch))
        return found

    def last(self, axis: int) -> int:
        """Return the last position along an axis at which a window may begin."""
        return self.step.operands[0].shape[axis] - self.sizes[axis]

    def places(self, columns: Sequence[Operand]) -> str:
        """Indices of all elements that an index says, one after the other: (..., axes)."""
        b = self.step.b
        shape = [*self.batch, *(self.sizes[axis] for axis in self.wide)]
        parts: list[str] = []
        for axis, column in zip(self.axes, columns, strict=True):
            offsets = np.zeros([1] * len(shape), np.int64)
            if axis in self.wide:
                sizes = [1] * len(shape)
                sizes[len(self.batch) + self.wide.index(axis)] = self.sizes[axis]
                offsets = np.arange(self.sizes[axis]).reshape(sizes)
            start = [*self.batch, *(1 for _ in self.wide)]
            if column.is_known:
                whole = np.broadcast_to(column.value.reshape(start) + offsets, shape)
                parts.append(b.constant("places", whole[..., None].astype(np.int64)))
                continue
            name = moves.reshape(b, column.value, start)
            if offsets.any():
                name = b.add("Add", name, b.constant("offsets", offsets))
            parts.append(moves.reshape(b, moves.expand(b, name, shape), [*shape, 1]))
        return moves.concatenate(b, parts, -1)


def _is_inside(windows: _GatherWindows, columns: Sequence[Operand]) -> str | None:
    """Whether windows lie within the operand, of shape `batch`; None where all surely do."""
    b = windows.step.b
    found: list[str] = []
    for axis, column in zip(windows.axes, columns, strict=True):
        last = windows.last(axis)
        if column.is_known:
            inside = (column.value >= 0) & (column.value <= last)
            if not inside.all():
                found.append(b.constant("inside", inside))
            continue
        low = b.add("GreaterOrEqual", column.value, moves.scalar(b, 0, np.int64))
        high = b.add("LessOrEqual", column.value, moves.scalar(b, last, np.int64))
        found.append(b.add("And", low, high))
    if not found:
        return None
    name = found[0]
    for other in found[1:]:
        name = b.add("And", name, other)
    return name


def _clamped(windows: _GatherWindows, columns: Sequence[Operand]) -> list[Operand]:
    b = windows.step.b
    found: list[Operand] = []
    for axis, column in zip(windows.axes, columns, strict=True):
        last = windows.last(axis)
        if column.is_known:
            found.append(Operand(np.clip(column.value, 0, last), column.shape))
            continue
        low = b.add("Max", column.value, moves.scalar(b, 0, np.int64))
        name = b.add("Min", low, moves.scalar(b, last, np.int64))
        found.append(Operand(name, column.shape))
    return found


def _gather(step: Step) -> str:
    numbers, b = step.params["dimension_numbers"], step.b
    pairs = list(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    axes = [*numbers.start_index_map, *(pair[0] for pair in pairs)]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    sizes = [int(size) for size in step.params["slice_sizes"]]
    windows = _GatherWindows(step, axes, dropped, sizes, pairs)
    mode = _mode(step)
    columns = windows.columns()
    inside = _is_inside(windows, columns) if mode == "FILL_OR_DROP" else None
    if mode != "PROMISE_IN_BOUNDS" and (mode == "CLIP" or inside is not None):
        columns = _clamped(windows, columns)
    own = step.operands[0].shape
    ends = [own[axis] if axis in axes else size for axis, size in enumerate(sizes)]
    source = moves.cut(b, step.full(0), [0] * len(ends), ends)
    source = moves.transpose(b, source, windows.order)
    places = windows.places(columns)
    if len(axes) == 1:
        places = moves.reshape(b, places, b.shape(places)[:-1])
        taken = b.add("Gather", source, places, axis=0)
    else:
        taken = b.add("GatherND", source, places)
    result = _arranged(windows, taken, [int(axis) for axis in numbers.offset_dims])
    if inside is None:
        return result
    return _filled(windows, result, inside, [int(axis) for axis in numbers.offset_dims])


def _mode(step: Step) -> str:
    return str(step.params["mode"]).rpartition(".")[2].upper()


def _arranged(windows: _GatherWindows, taken: str, offsets: list[int]) -> str:
    """What was taken, (batch, wide, rest), in the order of gather's result."""
    step = windows.step
    kept = [axis for axis in range(len(windows.sizes)) if axis not in windows.dropped]
    labels: list[Any] = [None] * len(step.shape)
    for position, axis in zip(offsets, kept, strict=True):
        labels[position] = ("window", axis)
    batch = iter(range(len(windows.batch)))
    labels = [("batch", next(batch)) if label is None else label for label in labels]
    own = [
        *(("batch", at) for at in range(len(windows.batch))),
        *(("window", axis) for axis in [*windows.wide, *windows.rest]),
    ]
    order = [own.index(label) for label in labels if label in own]
    return moves.reshape(step.b, moves.transpose(step.b, taken, order), step.shape)


def _filled(windows: _GatherWindows, result: str, inside: str, offsets: list[int]) -> str:
    """The result with what stands for windows that are not within the operand."""
    step, b = windows.step, windows.step.b
    shape = [1 if at in offsets else size for at, size in enumerate(step.shape)]
    condition = moves.reshape(b, inside, shape)
    filling = step.params["fill_value"]
    if filling is None:
        limits = {"f": np.nan, "b": True}
        filling = limits.get(step.dtype.kind)
        if filling is None:
            info = np.iinfo(step.dtype)
            filling = info.min if step.dtype.kind == "i" else info.max
    other = b.constant("filling", np.asarray(filling, step.dtype))
    if step.dtype == np.bool_:
        return choose(step.b, condition, result, other)
    return b.add("Where", condition, moves.widened(b, result), moves.widened(b, other))


REDUCTIONS = {
    **{"scatter": "none", "scatter-add": "add", "scatter_add": "add"},
    **{"scatter-mul": "mul", "scatter_mul": "mul"},
}


def _scatter(reduction: str) -> Rule:
    def rule(step: Step) -> str:
        numbers, b = step.params["dimension_numbers"], step.b
        pairs = list(
            zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
        )
        axes = [*numbers.scatter_dims_to_operand_dims, *(pair[0] for pair in pairs)]
        dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        own = step.operands[0].shape
        kept = [axis for axis in range(len(own)) if axis not in dropped]
        sizes = [1] * len(own)
        for axis, position in zip(kept, numbers.update_window_dims, strict=True):
            sizes[axis] = step.operands[2].shape[position]
        windows = _GatherWindows(step, axes, dropped, sizes, pairs)
        if any(sizes[axis] != own[axis] for axis in windows.rest):
            raise Unimportable("of parts of an axis without index")
        updates = _updates(windows, [int(axis) for axis in numbers.update_window_dims])
        result = _scattered(windows, updates, reduction)
        return moves.transpose(b, result, moves.inverse(windows.order))

    return rule


def _updates(windows: _GatherWindows, positions: list[int]) -> str:
    """Scatter's third operand as (batch, wide, rest)."""
    step, b = windows.step, windows.step.b
    kept = [axis for axis in range(len(windows.sizes)) if axis not in windows.dropped]
    where = dict(zip(kept, positions, strict=True))
    shape = step.operands[2].shape
    batch = [at for at in range(len(shape)) if at not in positions]
    single = [where[axis] for axis in kept if axis in windows.axes and axis not in windows.wide]
    order = [*batch, *single, *(where[axis] for axis in [*windows.wide, *windows.rest])]
    name = moves.transpose(b, step.wide_full(2), order)
    sizes = [shape[at] for at in order if at not in single]
    return moves.reshape(b, name, sizes)


def _scattered(windows: _GatherWindows, updates: str, reduction: str) -> str:
    """The operand, axes with an index first; what lies outside goes to a row that is cut off."""
    step, b = windows.step, windows.step.b
    target = moves.transpose(b, step.wide_full(0), windows.order)
    columns = windows.columns()
    mode = _mode(step)
    inside = _is_inside(windows, columns) if mode == "FILL_OR_DROP" else None
    if mode == "CLIP" or inside is not None:
        columns = _clamped(windows, columns)
    if inside is None:
        return b.add("ScatterND", target, windows.places(columns), updates, reduction=reduction)
    shape = b.shape(target)
    first = columns[0]
    begin = b.constant("places", first.value) if first.is_known else first.value
    outside = moves.scalar(b, shape[0], np.int64)
    columns[0] = Operand(b.add("Where", inside, begin, outside), first.shape)
    more = windows.sizes[windows.axes[0]]
    target = moves.pad(b, target, [0] * len(shape), [more, *(0 for _ in shape[1:])])
    places = windows.places(columns)
    result = b.add("ScatterND", target, places, updates, reduction=reduction)
    return moves.cut(b, result, [0] * len(shape), shape)


# ---- slices at places that are computed -------------------------------------------------------


def _starts(step: Step, first: int, sizes: Sequence[int]) -> list[Operand]:
    """Where a window begins along each axis, moved so that it lies within the operand."""
    b, found = step.b, list[Operand]()
    for axis, size in enumerate(sizes):
        last = step.operands[0].shape[axis] - size
        known = step.array(first + axis)
        if last == 0 or known is not None:
            begin = 0 if known is None else int(np.clip(known, 0, last))
            found.append(Operand(np.asarray(begin, np.int64), ()))
            continue
        start = moves.cast(b, step.compact(first + axis), np.int64)
        low = b.add("Max", start, moves.scalar(b, 0, np.int64))
        found.append(Operand(b.add("Min", low, moves.scalar(b, last, np.int64)), ()))
    return found


def _dynamic_slice(step: Step) -> str:
    b, name = step.b, step.full(0)
    sizes = [int(size) for size in step.params["slice_sizes"]]
    starts = _starts(step, 1, sizes)
    begins = [int(start.value) if start.is_known else 0 for start in starts]
    own = step.operands[0].shape
    ends = [
        begin + size if start.is_known else length
        for begin, size, start, length in zip(begins, sizes, starts, own, strict=True)
    ]
    name = moves.cut(b, name, begins, ends)
    for axis, start in enumerate(starts):
        if not start.is_known:
            offsets = moves.numbers(b, "offsets", range(sizes[axis]))
            name = b.add("Gather", name, b.add("Add", start.value, offsets), axis=axis)
    return name


def _dynamic_update(step: Step) -> str:
    """A window of the operand replaced, as ScatterND along the axes where it is not whole."""
    b, sizes = step.b, step.operands[1].shape
    starts = _starts(step, 2, sizes)
    parts = [axis for axis, size in enumerate(sizes) if size != step.operands[0].shape[axis]]
    if not parts:
        return step.full(1)
    count = parts[-1] + 1
    grid = np.moveaxis(np.indices(sizes[:count]), 0, -1).astype(np.int64)
    places = b.constant("offsets", grid)
    columns = [
        b.constant("start", np.reshape(start.value, 1))
        if start.is_known
        else moves.reshape(b, start.value, [1])
        for start in starts[:count]
    ]
    places = b.add("Add", places, moves.concatenate(b, columns, 0))
    return b.add("ScatterND", step.wide_full(0), places, step.wide_full(1))


# ---- order ------------------------------------------------------------------------------------


def _largest(step: Step) -> list[str]:
    b, x = step.b, step.wide_full(0)
    axis = int(step.params.get("axis", -1))
    k = moves.numbers(b, "k", [int(step.params["k"])])
    return b.add_several(2, "TopK", x, k, axis=axis, largest=1, sorted=1)


def _sorted(step: Step) -> list[str]:
    """Sort all operands in the order of the first."""
    if int(step.params["num_keys"]) != 1:
        raise Unimportable("by several keys")
    b, axis = step.b, int(step.params["dimension"])
    count = moves.numbers(b, "k", [step.shape[axis]])
    first, order = b.add_several(
        2, "TopK", step.wide_full(0), count, axis=axis, largest=0, sorted=1
    )
    others = [
        b.add("GatherElements", step.full(at), order, axis=axis) for at in range(1, step.count)
    ]
    return [first, *others]


INDEXING: dict[str, Rule] = {
    **{name: _scatter(reduction) for name, reduction in REDUCTIONS.items()},
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "gather": _gather,
    "sort": _sorted,
    "top_k": _largest,
}
