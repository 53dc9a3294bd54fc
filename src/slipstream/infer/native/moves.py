"""What only moves numbers."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.native.lower import Lowering, convert
from slipstream.infer.native.places import Place
from slipstream.infer.native.stages import Stage


def concat(lowering: Lowering, stage: Stage) -> None:
    """Concat: whoever computes a part of the channels writes it where it belongs, if it can; other
    parts are copied."""
    node = stage.node
    shape = lowering.shape(stage.output)
    axis = int(node.get("axis", 0)) % len(shape)
    parts = _whole(lowering, [lowering.read(name) for name in node.inputs])
    output = lowering.write(stage.output)
    copied: list[tuple[str, int]] = []
    begin = 0
    for part in parts:
        end = begin + lowering.shape(part)[axis]
        if axis != channels_of(shape) or not lowering.take_in(part, output, begin, end):
            copied.append((part, begin))
        begin = end

    def emit(at: Lowering) -> None:
        for part, begin in copied:
            source, target = at.place(part), at.place(output)
            moved = _moved(target, begin * target.strides()[axis])
            convert(at, source, moved, target_strides=target.strides())

    lowering.then(output, emit)


def channels_of(shape: Sequence[int]) -> int:
    """The axis of the channels."""
    return 1 if len(shape) == 4 else len(shape) - 1


def _whole(lowering: Lowering, parts: Sequence[str]) -> list[str]:
    """The parts, with a split value in place of all that it was split into, where these follow each
    other as they lie in it."""
    found: list[str] = []
    at = 0
    while at < len(parts):
        split = lowering.splits.get(parts[at], ())
        is_whole = bool(split) and tuple(parts[at : at + len(split)]) == split
        found.append(lowering.views[parts[at]][0] if is_whole else parts[at])
        at += len(split) if is_whole else 1
    return found


def _moved(place: Place, by: int) -> Place:
    return Place(
        place.buffer, place.offset + by, place.sizes, place.pitch, place.format, place.shape
    )


def split(lowering: Lowering, stage: Stage) -> None:
    """Split of channels: the parts are read where they lie."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    axis = int(node.get("axis", 0)) % len(shape)
    if axis != channels_of(shape):
        raise UnsupportedError(f"our kernels have no Split along axis {axis} of {shape}")
    begin = 0
    for output in node.outputs:
        end = begin + lowering.shape(output)[axis]
        lowering.view(output, node.inputs[0], lambda at, b=begin, e=end: at.channels(b, e))
        lowering.splits[output] = tuple(node.outputs)
        begin = end


def relayout(lowering: Lowering, stage: Stage) -> None:
    """Reshape and its kin, and Transpose: a strided copy, or none where nothing would move, or
    where a copy for the caller follows anyway."""
    if stage.node.op == "Transpose":
        _transpose(lowering, stage)
        return
    source = lowering.read(stage.node.inputs[0])
    output = lowering.write(stage.output)
    before, after = lowering.shape(source), lowering.shape(output)
    sizes = _common(before, after)

    def emit(at: Lowering) -> None:
        from_, to = at.place(source), at.place(output)
        convert(
            at,
            from_,
            to,
            _refined(before, from_.strides(), sizes),
            sizes,
            _refined(after, to.strides(), sizes),
        )

    lowering.then(output, emit)


def _transpose(lowering: Lowering, stage: Stage) -> None:
    source = lowering.read(stage.node.inputs[0])
    order = list(stage.node.get("perm", range(len(lowering.shape(source)))[::-1]))
    if lowering.only_leaves(stage.output):
        lowering.view(stage.output, source, lambda at: at.turned(order))
        return
    output = lowering.write(stage.output)

    def emit(at: Lowering) -> None:
        from_, to = at.place(source), at.place(output)
        strides = [from_.strides()[axis] for axis in order]
        convert(at, from_, to, strides, to.shape, to.strides())

    lowering.then(output, emit)


def _common(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """The coarsest sizes of which the dimensions of both shapes are products."""
    ends = sorted(set(np.cumprod(before[::-1]).tolist()) | set(np.cumprod(after[::-1]).tolist()))
    sizes: list[int] = []
    last = 1
    for end in ends:
        if end % last:
            raise UnsupportedError(f"our kernels have no Reshape from {before} to {after}")
        if end != last:
            sizes.append(end // last)
        last = end
    return sizes[::-1] or [1]


def _refined(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The strides of a tensor whose dimensions are cut into `sizes`."""
    found: list[int] = []
    rest = list(sizes)[::-1]
    for size, stride in zip(shape[::-1], strides[::-1], strict=True):
        inside = 1
        while rest and inside < size:
            found.append(stride * inside)
            inside *= rest.pop(0)
    found.extend([0] * len(rest))
    return found[::-1]


# Forms of Resize that repeat each pixel, where the factors are whole.
REPEATS = {
    ("nearest", "asymmetric", "floor"),
    *(
        ("nearest", where, rounding)
        for where in ("half_pixel", "pytorch_half_pixel")
        for rounding in ("round_prefer_floor", "round_prefer_ceil")
    ),
}


def resize(lowering: Lowering, stage: Stage) -> None:
    """Resize to a whole multiple by repeating the nearest pixel."""
    node = stage.node
    before, after = lowering.shape(node.inputs[0]), lowering.shape(stage.output)
    kinds = (
        node.get("mode", "nearest"),
        node.get("coordinate_transformation_mode", "half_pixel"),
        node.get("nearest_mode", "round_prefer_floor"),
    )
    if (
        len(before) != 4
        or kinds not in REPEATS
        or any(b % a for a, b in zip(before, after, strict=True))
        or before[:2] != after[:2]
    ):
        raise UnsupportedError(f"our kernels have no Resize {kinds} from {before} to {after}")
    down, right = after[2] // before[2], after[3] // before[3]
    source, output = lowering.read(node.inputs[0]), lowering.write(stage.output)
    sizes = (*before[:2], before[2], down, before[3], right)

    def emit(at: Lowering) -> None:
        from_, to = at.place(source), at.place(output)
        b, c, y, x = from_.strides()
        tb, tc, ty, tx = to.strides()
        convert(at, from_, to, (b, c, y, 0, x, 0), sizes, (tb, tc, ty * down, ty, tx * right, tx))

    lowering.then(output, emit)
