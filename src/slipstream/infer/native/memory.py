"""Arrange the values of a program in memory.

For kernels, a value consists of pixels whose channels are contiguous. An image (batch, channels,
rows, columns) is stored as (batch, rows, columns, channels). The tokens of a text (batch, tokens,
channels) are stored as one row of pixels, and a matrix (batch, channels) as one pixel. The distance
between pixels is a multiple of 16 channels, because kernels write whole vectors. An image may have
a border, for windows that reach beyond the image.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from slipstream.errors import UnsupportedError
from slipstream.infer.native.formats import Format, size_of

LINE = 64  # bytes of a cache line
# Depthwise kernels compute groups of up to six output pixels, so up to five beyond the last, whose
# results are dropped (kAtOnce and kPairPixels in kernels/).
MORE_OUTPUTS = 5
AHEAD = 2 * MORE_OUTPUTS + 2  # pixels beyond the last that kernels may read, with strides up to 2


@dataclass(frozen=True)
class Border:
    """Numbers of pixels on the four sides of an image."""

    above: int = 0
    left: int = 0
    below: int = 0
    right: int = 0

    def union(self, other: Border) -> Border:
        """Return the least border that contains both borders."""
        return Border(
            max(self.above, other.above),
            max(self.left, other.left),
            max(self.below, other.below),
            max(self.right, other.right),
        )


@dataclass(frozen=True)
class Location:
    """The place and the layout of one value in memory.

    Args:
        buffer: Index of the buffer that has the value; 0 is the program's own memory.
        offset: Bytes from the beginning of the buffer to the first number.
        sizes: Numbers of images, rows, columns and channels.
        pitch: Distances in bytes from an image to the next image, from a row to the next row, and
            from a pixel to the next pixel.
        format: Format of the numbers; None means float32.
        shape: Shape of the value in the graph.
        order: Permutation that turns the axes in memory into the axes of `shape` (default (): the
            axes are not permuted).
    """

    buffer: int
    offset: int
    sizes: tuple[int, int, int, int]
    pitch: tuple[int, int, int]
    format: Format
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of bytes that one number takes."""
        return size_of(self.format)

    def strides(self) -> tuple[int, ...]:
        """Return the bytes from one number to the next along each axis of `shape`."""
        batch, row, pixel = self.pitch
        plain = {
            4: (batch, self.size, row, pixel),
            3: (batch, pixel, self.size),
            2: (batch, self.size),
            1: (self.size,),
        }[len(self.shape)]
        return tuple(plain[axis] for axis in self.order) or plain

    def turned(self, order: Sequence[int]) -> Location:
        """Return the same memory with permuted axes; only copy steps can read such a location."""
        shape = tuple(self.shape[axis] for axis in order)
        return replace(self, shape=shape, order=tuple(order))

    def channels(self, begin: int, end: int) -> Location:
        """Return the location of the channels [begin, end) of the value."""
        shape = list(self.shape)
        shape[1 if len(shape) == 4 else -1] = end - begin
        return Location(
            self.buffer,
            self.offset + begin * self.size,
            (*self.sizes[:3], end - begin),
            self.pitch,
            self.format,
            tuple(shape),
        )


def pixels(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the sizes in memory, (batch, rows, columns, channels), of a value.

    Args:
        shape: Shape of the value in the graph.

    Raises:
        UnsupportedError: the shape has no dimension, or more than four.
    """
    if len(shape) == 4:
        return shape[0], shape[2], shape[3], shape[1]
    if len(shape) == 3:
        return shape[0], 1, shape[1], shape[2]
    if len(shape) == 2:
        return shape[0], 1, 1, shape[1]
    if len(shape) == 1:
        return 1, 1, 1, shape[0]
    raise UnsupportedError(f"the native engine has tensors of 1 to 4 dimensions, not {len(shape)}")


@dataclass
class Need:
    """The memory that a value needs, and the first and the last operator that use the memory."""

    shape: tuple[int, ...]
    format: Format
    first: int  # number of the operator that writes it
    last: int  # number of the last operator that reads it
    border: Border = Border()
    dense: bool = False  # no gaps between pixels: only copy steps may write it
    ahead: int = AHEAD  # pixels beyond the last one that may be read
    bytes: int = field(init=False, default=0)

    def location(self, offset: int = 0) -> Location:
        """Return the location of the value if its memory begins at `offset`."""
        batch, rows, columns, channels = pixels(self.shape)
        size = size_of(self.format)
        pixel = -(-channels // 16) * 16 * size
        if self.dense:
            pixel = channels * size
        row = (self.border.left + columns + self.border.right) * pixel
        image = (self.border.above + rows + self.border.below) * row
        self.bytes = -(-(batch * image + self.ahead * pixel + LINE) // LINE) * LINE
        inner = offset + self.border.above * row + self.border.left * pixel
        return Location(
            0, inner, (batch, rows, columns, channels), (image, row, pixel), self.format, self.shape
        )


def arrange(needs: Iterable[tuple[str, Need]]) -> tuple[dict[str, Location], int]:
    """Return a pair: the location of each value by name, and the total size in bytes.

    Values are placed in the order of their sizes, the largest first. A value gets the lowest
    address that is free from the first to the last operator that uses the value.
    """
    locations: dict[str, Location] = {}
    taken: list[tuple[int, int, Need]] = []  # begin and end of the memory, and its value
    total = 0
    for _, need in (items := list(needs)):
        need.location()
    for name, need in sorted(items, key=lambda item: -item[1].bytes):
        occupied = sorted(
            (begin, end)
            for begin, end, other in taken
            if other.first <= need.last and need.first <= other.last
        )
        offset = 0
        for begin, end in occupied:
            if begin - offset >= need.bytes:
                break
            offset = max(offset, end)
        locations[name] = need.location(offset)
        taken.append((offset, offset + need.bytes, need))
        total = max(total, offset + need.bytes)
    return locations, total
