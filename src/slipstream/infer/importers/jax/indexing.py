"""JAX's indexing primitives: gather, scatter, dynamic slices, sorting."""

# NumPy's stubs do not state the types of many results.
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
    """Windows of an operand that gather reads, or that scatter writes.

    In the array of indices, the last axis holds the numbers of one window's start.

    Args:
        step: Equation of the gather or scatter.
        axes: Axes of the operand along which the windows have different starts. First come the axes
            whose starts are columns of the indices, in the order of the columns, then the batch
            axes.
        dropped: Axes of the operand that the result of gather, or the updates of scatter, lack.
        sizes: Window sizes along all axes of the operand.
        batching: Pairs of axes: a batch axis of the operand, and the same axis of the indices.
    """

    step: Step
    axes: list[int]
    dropped: set[int]
    sizes: list[int]
    batching: list[tuple[int, int]]

    @property
    def rest(self) -> list[int]:
        """Axes of the operand that are not in `axes`; every window begins at 0 along them."""
        return [axis for axis in range(len(self.sizes)) if axis not in self.axes]

    @property
    def wide(self) -> list[int]:
        """Those of `axes` along which the windows are longer than 1."""
        return [axis for axis in self.axes if self.sizes[axis] > 1]

    @property
    def batch(self) -> tuple[int, ...]:
        """Number of windows along each axis of the indices except the last."""
        return self.step.operands[1].shape[:-1]

    @property
    def order(self) -> list[int]:
        """All axes of the operand: first `axes`, then `rest`."""
        return [*self.axes, *self.rest]

    def columns(self) -> list[Operand]:
        """Return one operand for each axis in `axes`: the int64 starts of all windows along it."""
        step, b, indices = self.step, self.step.b, self.step.operands[1]
        columns: list[Operand] = []
        indices_array = step.whole_array(1)
        for at in range(indices.shape[-1]):
            if indices_array is not None:
                columns.append(Operand(indices_array[..., at].astype(np.int64), self.batch))
                continue
            starts = [*(0 for _ in self.batch), at]
            name = moves.cut(b, step.full(1), starts, [*self.batch, at + 1])
            name = moves.cast(b, moves.reshape(b, name, self.batch), np.int64)
            columns.append(Operand(name, self.batch))
        for _, axis in self.batching:
            shape = [1] * len(self.batch)
            shape[axis] = self.batch[axis]
            numbers = np.arange(self.batch[axis]).reshape(shape)
            columns.append(Operand(np.broadcast_to(numbers, self.batch), self.batch))
        return columns

    def last(self, axis: int) -> int:
        """Return the last position along an axis at which a window may begin."""
        return self.step.operands[0].shape[axis] - self.sizes[axis]

    def places(self, columns: Sequence[Operand]) -> str:
        """Return the name of an array that has the position of each element of each window.

        Its shape is `batch`, then the windows' sizes along `wide`, then len(axes).
        """
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
                positions = np.broadcast_to(column.value.reshape(start) + offsets, shape)
                parts.append(b.constant("places", positions[..., None].astype(np.int64)))
                continue
            name = moves.reshape(b, column.value, start)
            if offsets.any():
                name = b.add("Add", name, b.constant("offsets", offsets))
            parts.append(moves.reshape(b, moves.expand(b, name, shape), [*shape, 1]))
        return moves.concatenate(b, parts, -1)


def _is_inside(windows: _GatherWindows, columns: Sequence[Operand]) -> str | None:
    """Return the name of an array of bools: whether each window lies inside the operand.

    The result is None if all windows are known to lie inside.
    """
    b = windows.step.b
    conditions: list[str] = []
    for axis, column in zip(windows.axes, columns, strict=True):
        last = windows.last(axis)
        if column.is_known:
            inside = (column.value >= 0) & (column.value <= last)
            if not inside.all():
                conditions.append(b.constant("inside", inside))
            continue
        low = b.add("GreaterOrEqual", column.value, moves.scalar(b, 0, np.int64))
        high = b.add("LessOrEqual", column.value, moves.scalar(b, last, np.int64))
        conditions.append(b.add("And", low, high))
    if not conditions:
        return None
    name = conditions[0]
    for other in conditions[1:]:
        name = b.add("And", name, other)
    return name


def _clamped(windows: _GatherWindows, columns: Sequence[Operand]) -> list[Operand]:
    b = windows.step.b
    clamped: list[Operand] = []
    for axis, column in zip(windows.axes, columns, strict=True):
        last = windows.last(axis)
        if column.is_known:
            clamped.append(Operand(np.clip(column.value, 0, last), column.shape))
            continue
        low = b.add("Max", column.value, moves.scalar(b, 0, np.int64))
        name = b.add("Min", low, moves.scalar(b, last, np.int64))
        clamped.append(Operand(name, column.shape))
    return clamped


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
    operand_shape = step.operands[0].shape
    ends = [operand_shape[axis] if axis in axes else size for axis, size in enumerate(sizes)]
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
    """Return gathered elements with their axes in the order of gather's result.

    The axes of `taken` are those of `windows.batch`, then `windows.wide`, then `windows.rest`.
    """
    step = windows.step
    window_axes = [axis for axis in range(len(windows.sizes)) if axis not in windows.dropped]
    labels: list[Any] = [None] * len(step.shape)
    for position, axis in zip(offsets, window_axes, strict=True):
        labels[position] = ("window", axis)
    batch = iter(range(len(windows.batch)))
    labels = [("batch", next(batch)) if label is None else label for label in labels]
    current = [
        *(("batch", at) for at in range(len(windows.batch))),
        *(("window", axis) for axis in [*windows.wide, *windows.rest]),
    ]
    order = [current.index(label) for label in labels if label in current]
    return moves.reshape(step.b, moves.transpose(step.b, taken, order), step.shape)


def _filled(windows: _GatherWindows, result: str, inside: str, offsets: list[int]) -> str:
    """Replace windows that lie outside the operand by the fill value."""
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
        operand_shape = step.operands[0].shape
        window_axes = [axis for axis in range(len(operand_shape)) if axis not in dropped]
        sizes = [1] * len(operand_shape)
        for axis, position in zip(window_axes, numbers.update_window_dims, strict=True):
            sizes[axis] = step.operands[2].shape[position]
        windows = _GatherWindows(step, axes, dropped, sizes, pairs)
        if any(sizes[axis] != operand_shape[axis] for axis in windows.rest):
            raise Unimportable("of a part of an axis that has no index")
        updates = _updates(windows, [int(axis) for axis in numbers.update_window_dims])
        result = _scattered(windows, updates, reduction)
        return moves.transpose(b, result, moves.inverse(windows.order))

    return rule


def _updates(windows: _GatherWindows, positions: list[int]) -> str:
    """Return the updates of a scatter, with their axes reordered.

    The axes are those of `windows.batch`, then `windows.wide`, then `windows.rest`.
    """
    step, b = windows.step, windows.step.b
    window_axes = [axis for axis in range(len(windows.sizes)) if axis not in windows.dropped]
    positions_by_axis = dict(zip(window_axes, positions, strict=True))
    shape = step.operands[2].shape
    batch = [at for at in range(len(shape)) if at not in positions]
    single = [
        positions_by_axis[axis]
        for axis in window_axes
        if axis in windows.axes and axis not in windows.wide
    ]
    order = [*batch, *single, *(positions_by_axis[axis] for axis in [*windows.wide, *windows.rest])]
    name = moves.transpose(b, step.wide_full(2), order)
    sizes = [shape[at] for at in order if at not in single]
    return moves.reshape(b, name, sizes)


def _scattered(windows: _GatherWindows, updates: str, reduction: str) -> str:
    """Scatter the updates; the axes of the result are in the order `windows.order`.

    Windows outside the operand are written to extra rows, which are cut off afterwards.
    """
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
    num_extra_rows = windows.sizes[windows.axes[0]]
    target = moves.pad(b, target, [0] * len(shape), [num_extra_rows, *(0 for _ in shape[1:])])
    places = windows.places(columns)
    result = b.add("ScatterND", target, places, updates, reduction=reduction)
    return moves.cut(b, result, [0] * len(shape), shape)


# ---- slices at computed positions -------------------------------------------------------------


def _starts(step: Step, first: int, sizes: Sequence[int]) -> list[Operand]:
    """Return a window's start along each axis.

    A start is moved if the window would not fit into the operand.
    """
    b, starts = step.b, list[Operand]()
    for axis, size in enumerate(sizes):
        last = step.operands[0].shape[axis] - size
        known = step.array(first + axis)
        if last == 0 or known is not None:
            begin = 0 if known is None else int(np.clip(known, 0, last))
            starts.append(Operand(np.asarray(begin, np.int64), ()))
            continue
        start = moves.cast(b, step.compact(first + axis), np.int64)
        low = b.add("Max", start, moves.scalar(b, 0, np.int64))
        starts.append(Operand(b.add("Min", low, moves.scalar(b, last, np.int64)), ()))
    return starts


def _dynamic_slice(step: Step) -> str:
    b, name = step.b, step.full(0)
    sizes = [int(size) for size in step.params["slice_sizes"]]
    starts = _starts(step, 1, sizes)
    begins = [int(start.value) if start.is_known else 0 for start in starts]
    operand_shape = step.operands[0].shape
    ends = [
        begin + size if start.is_known else length
        for begin, size, start, length in zip(begins, sizes, starts, operand_shape, strict=True)
    ]
    name = moves.cut(b, name, begins, ends)
    for axis, start in enumerate(starts):
        if not start.is_known:
            offsets = moves.numbers(b, "offsets", range(sizes[axis]))
            name = b.add("Gather", name, b.add("Add", start.value, offsets), axis=axis)
    return name


def _dynamic_update(step: Step) -> str:
    """Add a ScatterND that replaces a window of the operand."""
    b, sizes = step.b, step.operands[1].shape
    starts = _starts(step, 2, sizes)
    cut_axes = [axis for axis, size in enumerate(sizes) if size != step.operands[0].shape[axis]]
    if not cut_axes:
        return step.full(1)
    count = cut_axes[-1] + 1
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
    """Sort all operands by the numbers of the first operand."""
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
