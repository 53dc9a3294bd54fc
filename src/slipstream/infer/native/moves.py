"""Plan operators that only move numbers."""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.native.lowering import Lowering, convert
from slipstream.infer.native.memory import Location
from slipstream.infer.native.stages import Stage


def concat(lowering: Lowering, stage: Stage) -> None:
    """Plan Concat.

    If possible, an operand of Concat is computed directly in the memory of the result; otherwise
    the operand is copied.
    """
    node = stage.node
    shape = lowering.shape(stage.output)
    axis = int(node.get("axis", 0)) % len(shape)
    parts = _with_splits_joined(lowering, [lowering.read(name) for name in node.inputs])
    output = lowering.write(stage.output)
    copied: list[tuple[str, int]] = []
    begin = 0
    for part in parts:
        end = begin + lowering.shape(part)[axis]
        if axis != channels_of(shape) or not lowering.merge_into(part, output, begin, end):
            copied.append((part, begin))
        begin = end

    def emit(at: Lowering) -> None:
        for part, begin in copied:
            source, target = at.location(part), at.location(output)
            moved = _moved(target, begin * target.strides()[axis])
            convert(at, source, moved, target_strides=target.strides())

    lowering.emit_later(output, emit)


def channels_of(shape: Sequence[int]) -> int:
    """Return the axis of the channels in a shape."""
    return 1 if len(shape) == 4 else len(shape) - 1


def _with_splits_joined(lowering: Lowering, names: Sequence[str]) -> list[str]:
    """Return the names, but replace the outputs of a Split by the Split's input.

    Outputs are replaced only if all of them are listed, in order.
    """
    result: list[str] = []
    at = 0
    while at < len(names):
        parts = lowering.splits.get(names[at], ())
        has_all = bool(parts) and tuple(names[at : at + len(parts)]) == parts
        result.append(lowering.views[names[at]][0] if has_all else names[at])
        at += len(parts) if has_all else 1
    return result


def _moved(location: Location, by: int) -> Location:
    return Location(
        location.buffer,
        location.offset + by,
        location.sizes,
        location.pitch,
        location.format,
        location.shape,
    )


def split(lowering: Lowering, stage: Stage) -> None:
    """Plan Split along the channels: its outputs share the memory of its input."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    axis = int(node.get("axis", 0)) % len(shape)
    if axis != channels_of(shape):
        raise UnsupportedError(
            f"the native engine has Split along the channels only, not along axis {axis} of {shape}"
        )
    begin = 0
    for output in node.outputs:
        end = begin + lowering.shape(output)[axis]
        lowering.view(output, node.inputs[0], lambda at, b=begin, e=end: at.channels(b, e))
        lowering.splits[output] = tuple(node.outputs)
        begin = end


def relayout(lowering: Lowering, stage: Stage) -> None:
    """Plan Reshape, Flatten, Squeeze, Unsqueeze or Transpose as one copy with strides.

    If the result of a Transpose is an output of the graph that no node reads, the Transpose needs
    no step of its own: copying the output to the caller's array transposes it.
    """
    if stage.node.op == "Transpose":
        _transpose(lowering, stage)
        return
    source = lowering.read(stage.node.inputs[0])
    output = lowering.write(stage.output)
    before, after = lowering.shape(source), lowering.shape(output)
    sizes = _common(before, after)

    def emit(at: Lowering) -> None:
        from_, to = at.location(source), at.location(output)
        convert(
            at,
            from_,
            to,
            _refined(before, from_.strides(), sizes),
            sizes,
            _refined(after, to.strides(), sizes),
        )

    lowering.emit_later(output, emit)


def _transpose(lowering: Lowering, stage: Stage) -> None:
    source = lowering.read(stage.node.inputs[0])
    order = list(stage.node.get("perm", range(len(lowering.shape(source)))[::-1]))
    if lowering.is_pure_output(stage.output):
        lowering.view(stage.output, source, lambda at: at.turned(order))
        return
    output = lowering.write(stage.output)

    def emit(at: Lowering) -> None:
        from_, to = at.location(source), at.location(output)
        strides = [from_.strides()[axis] for axis in order]
        convert(at, from_, to, strides, to.shape, to.strides())

    lowering.emit_later(output, emit)


def _common(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Return the fewest sizes that give both shapes if neighbouring sizes are multiplied.

    For example, the sizes of (6, 4) and (2, 12) are (2, 3, 4), because 6 = 2 * 3 and 12 = 3 * 4.
    """
    ends = sorted(set(np.cumprod(before[::-1]).tolist()) | set(np.cumprod(after[::-1]).tolist()))
    sizes: list[int] = []
    last = 1
    for end in ends:
        if end % last:
            raise UnsupportedError(
                f"the native engine cannot reshape {before} to {after} in one copy"
            )
        if end != last:
            sizes.append(end // last)
        last = end
    return sizes[::-1] or [1]


def _refined(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return one stride for each of `sizes`, into which the dimensions of a tensor are divided."""
    result: list[int] = []
    remaining_sizes = list(sizes)[::-1]
    for size, stride in zip(shape[::-1], strides[::-1], strict=True):
        inner_size = 1
        while remaining_sizes and inner_size < size:
            result.append(stride * inner_size)
            inner_size *= remaining_sizes.pop(0)
    result.extend([0] * len(remaining_sizes))
    return result[::-1]


# Modes of Resize that repeat each pixel if the scale factors are integers.
REPEATS = {
    ("nearest", "asymmetric", "floor"),
    *(
        ("nearest", coordinates, rounding)
        for coordinates in ("half_pixel", "pytorch_half_pixel")
        for rounding in ("round_prefer_floor", "round_prefer_ceil")
    ),
}


def resize(lowering: Lowering, stage: Stage) -> None:
    """Plan Resize by integer factors; each pixel of the image is repeated."""
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
        raise UnsupportedError(
            "the native engine has Resize of images to the nearest pixel by integer factors, not "
            f"{kinds} from {before} to {after}"
        )
    down, right = after[2] // before[2], after[3] // before[3]
    source, output = lowering.read(node.inputs[0]), lowering.write(stage.output)
    sizes = (*before[:2], before[2], down, before[3], right)

    def emit(at: Lowering) -> None:
        from_, to = at.location(source), at.location(output)
        b, c, y, x = from_.strides()
        tb, tc, ty, tx = to.strides()
        convert(at, from_, to, (b, c, y, 0, x, 0), sizes, (tb, tc, ty * down, ty, tx * right, tx))

    lowering.emit_later(output, emit)
