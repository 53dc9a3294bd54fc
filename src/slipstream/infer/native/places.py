"""Where every value lies in the memory of a program.

Kernels see pixels with all their channels one after another. A picture (batch, channels, rows,
columns) lies as (batch, rows, columns, channels); the tokens of a text (batch, tokens, channels) as
one row of pixels; a matrix (batch, channels) as one pixel. Pixels are 16 channels apart or a
multiple of it, because kernels write whole vectors; around a picture there may be a border for
windows that reach beyond it.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from slipstream.errors import UnsupportedError
from slipstream.infer.native.formats import Format, size_of

LINE = 64  # bytes
# Outputs beyond the last that depthwise kernels compute: what they read for these goes nowhere.
MORE_OUTPUTS = 5
AHEAD = 2 * MORE_OUTPUTS + 2  # pixels beyond the last that kernels may read, with strides up to 2


@dataclass(frozen=True)
class Border:
    """Pixels around a picture."""

    above: int = 0
    left: int = 0
    below: int = 0
    right: int = 0

    def union(self, other: Border) -> Border:
        """Room for both."""
        return Border(
            max(self.above, other.above),
            max(self.left, other.left),
            max(self.below, other.below),
            max(self.right, other.right),
        )


@dataclass(frozen=True)
class Place:
    """Where one value lies: sizes (batch, rows, columns, channels), bytes between neighbours."""

    buffer: int
    offset: int
    sizes: tuple[int, int, int, int]
    pitch: tuple[int, int, int]
    format: Format
    shape: tuple[int, ...]  # as the graph has it
    order: tuple[int, ...] = ()  # of the axes, if another one than that in which it was computed

    @property
    def size(self) -> int:
        """Bytes of one number."""
        return size_of(self.format)

    def strides(self) -> tuple[int, ...]:
        """Bytes from one number to the next along each axis of `shape`."""
        batch, row, pixel = self.pitch
        plain = {
            4: (batch, self.size, row, pixel),
            3: (batch, pixel, self.size),
            2: (batch, self.size),
            1: (self.size,),
        }[len(self.shape)]
        return tuple(plain[axis] for axis in self.order) or plain

    def turned(self, order: Sequence[int]) -> Place:
        """The same memory with its axes in another order: for copies only."""
        shape = tuple(self.shape[axis] for axis in order)
        return replace(self, shape=shape, order=tuple(order))

    def channels(self, begin: int, end: int) -> Place:
        """Some channels of it, where they lie."""
        shape = list(self.shape)
        shape[1 if len(shape) == 4 else -1] = end - begin
        return Place(
            self.buffer,
            self.offset + begin * self.size,
            (*self.sizes[:3], end - begin),
            self.pitch,
            self.format,
            tuple(shape),
        )


def pixels(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """(batch, rows, columns, channels) of a value; UnsupportedError above four dimensions."""
    if len(shape) == 4:
        return shape[0], shape[2], shape[3], shape[1]
    if len(shape) == 3:
        return shape[0], 1, shape[1], shape[2]
    if len(shape) == 2:
        return shape[0], 1, 1, shape[1]
    if len(shape) == 1:
        return 1, 1, 1, shape[0]
    raise UnsupportedError(f"our kernels have 1 to 4 dimensions, not {len(shape)}")


@dataclass
class Need:
    """What a value needs of memory, and from which step to which."""

    shape: tuple[int, ...]
    format: Format
    first: int
    last: int
    border: Border = Border()
    dense: bool = False  # no room between pixels: only copies may write it
    ahead: int = AHEAD  # pixels
    bytes: int = field(init=False, default=0)

    def place(self, offset: int = 0) -> Place:
        """Where it lies if its memory begins at `offset`."""
        batch, rows, columns, channels = pixels(self.shape)
        size = size_of(self.format)
        pixel = -(-channels // 16) * 16 * size
        if self.dense:
            pixel = channels * size
        row = (self.border.left + columns + self.border.right) * pixel
        whole = (self.border.above + rows + self.border.below) * row
        self.bytes = -(-(batch * whole + self.ahead * pixel + LINE) // LINE) * LINE
        inner = offset + self.border.above * row + self.border.left * pixel
        return Place(
            0, inner, (batch, rows, columns, channels), (whole, row, pixel), self.format, self.shape
        )


def arrange(needs: Iterable[tuple[str, Need]]) -> tuple[dict[str, Place], int]:
    """Places for all, largest first, each in the lowest gap that is free while it is needed."""
    places: dict[str, Place] = {}
    taken: list[tuple[int, int, Need]] = []  # begin, end
    total = 0
    for _, need in (items := list(needs)):
        need.place()
    for name, need in sorted(items, key=lambda item: -item[1].bytes):
        rivals = sorted(
            (begin, end)
            for begin, end, other in taken
            if other.first <= need.last and need.first <= other.last
        )
        offset = 0
        for begin, end in rivals:
            if begin - offset >= need.bytes:
                break
            offset = max(offset, end)
        places[name] = need.place(offset)
        taken.append((offset, offset + need.bytes, need))
        total = max(total, offset + need.bytes)
    return places, total
