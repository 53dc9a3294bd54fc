"""TensorFlow's ops that move, cut and look up elements, as ONNX operators."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.infer.importers import moves
from slipstream.infer.importers.step import Rule, Step, Unimportable, choose


def _integers(step: Step, at: int) -> list[int]:
    """Return the integers of an operand that is known at import time."""
    return [int(number) for number in step.known(at).reshape(-1)]


def _reshaped(step: Step) -> str:
    sizes = _integers(step, 1)
    count = int(np.prod(step.operands[0].shape))
    if -1 in sizes:
        num_known = int(np.prod([size for size in sizes if size != -1]))
        sizes[sizes.index(-1)] = count // num_known
    return moves.reshape(step.b, step.full(0), sizes)


def _expanded(step: Step) -> str:
    shape, axis = list(step.operands[0].shape), int(step.known(1).reshape(()))
    shape.insert(axis % (len(shape) + 1), 1)
    return moves.reshape(step.b, step.full(0), shape)


def _squeezed(step: Step) -> str:
    shape = step.operands[0].shape
    removed = [int(axis) % len(shape) for axis in step.params.get("squeeze_dims") or []]
    removed = removed or [axis for axis, size in enumerate(shape) if size == 1]
    remaining = [size for axis, size in enumerate(shape) if axis not in removed]
    return moves.reshape(step.b, step.full(0), remaining)


def _transposed(step: Step) -> str:
    return moves.transpose(step.b, step.full(0), _integers(step, 1))


def _joined(step: Step) -> str:
    last = step.count - 1
    names = [step.full(at) for at in range(last) if 0 not in step.operands[at].shape]
    return moves.concatenate(step.b, names, int(step.known(last).reshape(())))


def _packed(step: Step) -> str:
    shape = list(step.operands[0].shape)
    axis = int(step.params["axis"]) % (len(shape) + 1)
    shape.insert(axis, 1)
    names = [moves.reshape(step.b, step.full(at), shape) for at in range(step.count)]
    return moves.concatenate(step.b, names, axis)


def _unpacked(step: Step) -> list[str]:
    shape = list(step.operands[0].shape)
    axis = int(step.params["axis"]) % len(shape)
    sizes = [size for at, size in enumerate(shape) if at != axis]
    parts: list[str] = []
    for at in range(shape[axis]):
        starts, ends = [0] * len(shape), list(shape)
        starts[axis], ends[axis] = at, at + 1
        parts.append(moves.reshape(step.b, moves.cut(step.b, step.full(0), starts, ends), sizes))
    return parts


def _split(step: Step) -> list[str]:
    """Convert Split, whose operands are an axis and the value to split."""
    axis, count = int(step.known(0).reshape(())), int(step.params["num_split"])
    size = step.operands[1].shape[axis] // count
    return _parts(step, step.full(1), axis, [size] * count)


def _split_by_sizes(step: Step) -> list[str]:
    """Convert SplitV, whose operands are a value, sizes (one may be -1) and an axis."""
    axis, sizes = int(step.known(2).reshape(())), _integers(step, 1)
    if -1 in sizes:
        length = step.operands[0].shape[axis]
        sizes[sizes.index(-1)] = length - sum(size for size in sizes if size != -1)
    return _parts(step, step.full(0), axis, sizes)


def _parts(step: Step, name: str, axis: int, sizes: Sequence[int]) -> list[str]:
    if len(sizes) == 1:
        return [name]
    lengths = moves.numbers(step.b, "sizes", sizes)
    return step.b.add_several(len(sizes), "Split", name, lengths, axis=axis)


# ---- slices -----------------------------------------------------------------------------------


def _cut(step: Step) -> str:
    starts, sizes = _integers(step, 1), _integers(step, 2)
    shape = step.operands[0].shape
    ends = [
        length if size == -1 else start + size
        for start, size, length in zip(starts, sizes, shape, strict=True)
    ]
    return moves.cut(step.b, step.full(0), starts, ends)


def _index(step: Step) -> tuple[Any, ...]:
    """Convert StridedSlice's operands and masks to a NumPy index."""
    begins, ends, strides = (_integers(step, at) for at in (1, 2, 3))
    masks = {
        name: int(step.params[f"{name}_mask"])
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    items: list[Any] = []
    for at, (begin, end, stride) in enumerate(zip(begins, ends, strides, strict=True)):
        bit = 1 << at
        if masks["ellipsis"] & bit:
            items.append(Ellipsis)
        elif masks["new_axis"] & bit:
            items.append(None)
        elif masks["shrink_axis"] & bit:
            items.append(begin)
        else:
            first = None if masks["begin"] & bit else begin
            items.append(slice(first, None if masks["end"] & bit else end, stride))
    return tuple(items)


def _strided(step: Step) -> str:
    b, shape, index = step.b, step.operands[0].shape, _index(step)
    result_shape = np.broadcast_to(np.int8(0), shape)[index].shape
    if 0 in result_shape:
        raise Unimportable("of no elements")
    name = step.full(0)
    slices = _per_axis(index, len(shape))
    ranges = [
        range(length)[item] if isinstance(item, slice) else range(length)[item : item + 1 or None]
        for item, length in zip(slices, shape, strict=True)
    ]
    backward = [axis for axis, places in enumerate(ranges) if places.step < 0]
    name = moves.flip(b, name, backward)
    starts: list[int] = []
    ends: list[int] = []
    for axis, (places, length) in enumerate(zip(ranges, shape, strict=True)):
        first = length - 1 - places[0] if axis in backward else places[0]
        starts.append(first)
        ends.append(first + (len(places) - 1) * abs(places.step) + 1)
    name = moves.cut(b, name, starts, ends, [abs(places.step) for places in ranges])
    return moves.reshape(b, name, result_shape)


def _per_axis(index: Sequence[Any], rank: int) -> list[Any]:
    """Expand a NumPy index to a list with one slice or number for each of the `rank` axes."""
    items = [item for item in index if item is not None]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (rank - len(items) + 1)
    return [*items, *[slice(None)] * (rank - len(items))]


def _flipped(step: Step) -> str:
    rank = len(step.operands[0].shape)
    return moves.flip(step.b, step.full(0), [axis % rank for axis in _integers(step, 1)])


def _padded(step: Step) -> str:
    low, high = step.known(1).T.tolist()
    value = step.full(2) if step.count > 2 else None
    if value is not None:
        value = moves.reshape(step.b, value, ())
    return moves.pad(step.b, step.full(0), low, high, value)


def _mirrored(step: Step) -> str:
    mode = step.text("mode")
    if mode != "REFLECT":
        raise Unimportable(f"of mode {mode}")
    pads = moves.numbers(step.b, "pads", step.known(1).T.reshape(-1).tolist())
    return step.b.add("Pad", step.full(0), pads, mode="reflect")


# ---- repeating --------------------------------------------------------------------------------


def _tiled(step: Step) -> str:
    counts = _integers(step, 1)
    if all(count == 1 for count in counts):
        return step.full(0)
    return step.b.add("Tile", step.wide(0), moves.numbers(step.b, "repeats", counts))


def _broadcast(step: Step) -> str:
    shape = _integers(step, 1)
    operand_shape = step.operands[0].shape
    name = moves.reshape(
        step.b, step.full(0), [*[1] * (len(shape) - len(operand_shape)), *operand_shape]
    )
    return moves.expand(step.b, name, shape)


def _filled(step: Step) -> str:
    shape = _integers(step, 0)
    name = moves.reshape(step.b, step.full(1), [1] * len(shape))
    return moves.expand(step.b, name, shape)


# ---- look-ups ---------------------------------------------------------------------------------


def _gathered(step: Step) -> str:
    b, rank = step.b, len(step.operands[0].shape)
    axis = int(step.known(2).reshape(())) % rank if step.count > 2 else 0
    indices = moves.cast(b, step.full(1), np.int64)
    batch = int(step.params.get("batch_dims", 0) or 0) % (len(step.operands[1].shape) + 1)
    if batch == 0:
        return b.add("Gather", step.full(0), indices, axis=axis)
    if axis != batch:
        raise Unimportable(f"with batch_dims {batch} along axis {axis}")
    indices = moves.reshape(b, indices, [*b.shape(indices), 1])
    return b.add("GatherND", step.full(0), indices, batch_dims=batch)


def _gathered_rows(step: Step) -> str:
    indices = moves.cast(step.b, step.full(1), np.int64)
    return step.b.add("GatherND", step.full(0), indices)


def _scattered(reduction: str) -> Rule:
    """Return a function that converts a scatter op such as TensorScatterUpdate."""

    def rule(step: Step) -> str:
        indices = moves.cast(step.b, step.full(1), np.int64)
        return step.b.add("ScatterND", step.wide(0), indices, step.wide(2), reduction=reduction)

    return rule


def _one_hot(step: Step) -> str:
    """Convert OneHot.

    The operands of OneHot are the indices, the depth, the value at an index, and the value
    elsewhere.
    """
    b, depth = step.b, int(step.known(1).reshape(()))
    operand_shape = step.operands[0].shape
    axis = int(step.params.get("axis", -1)) % (len(operand_shape) + 1)
    indices = moves.cast(b, step.full(0), np.int64)
    indices = moves.reshape(b, indices, [*operand_shape[:axis], 1, *operand_shape[axis:]])
    numbers = np.arange(depth).reshape([-1, *(1 for _ in operand_shape[axis:])])
    is_index = b.add("Equal", indices, b.constant("places", numbers))
    return choose(b, is_index, step.wide(2), step.wide(3))


def _largest(step: Step) -> list[str]:
    k = moves.numbers(step.b, "k", _integers(step, 1))
    return step.b.add_several(2, "TopK", step.wide(0), k, axis=-1, largest=1, sorted=1)


SHAPES: dict[str, Rule] = {
    "BroadcastTo": _broadcast,
    "ConcatV2": _joined,
    "ExpandDims": _expanded,
    "Fill": _filled,
    "Gather": _gathered,
    "GatherNd": _gathered_rows,
    "GatherV2": _gathered,
    "MirrorPad": _mirrored,
    "OneHot": _one_hot,
    "Pack": _packed,
    "Pad": _padded,
    "PadV2": _padded,
    "Reshape": _reshaped,
    "ReverseV2": _flipped,
    "Slice": _cut,
    "Split": _split,
    "SplitV": _split_by_sizes,
    "Squeeze": _squeezed,
    "StridedSlice": _strided,
    "TensorScatterAdd": _scattered("add"),
    "TensorScatterUpdate": _scattered("none"),
    "Tile": _tiled,
    "TopKV2": _largest,
    "Transpose": _transposed,
    "Unpack": _unpacked,
}
