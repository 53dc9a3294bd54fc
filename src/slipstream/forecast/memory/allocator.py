"""A model of PyTorch's caching allocator for CUDA, which counts the reserved device memory.

The allocator rounds a request up to a multiple of 512 bytes and cuts a piece of this size out of a
segment of device memory. The allocator uses the smallest free piece that is large enough and, among
pieces of equal size, the piece at the lowest address. A freed piece is joined with free neighbours
in its segment and stays reserved until the device is full. A stream never receives a piece that
another stream freed.

Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp and docs.pytorch.org/docs/stable/notes/cuda.html,
"Memory management". The model assumes the defaults of PYTORCH_CUDA_ALLOC_CONF.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from slipstream.units import MIB

# The sizes below are PyTorch's constants (c10/cuda/CUDACachingAllocator.cpp). The size of every
# piece is a multiple of `UNIT_BYTES`.
UNIT_BYTES = 512
# Requests up to `SMALL_BYTES` come from the small pool, whose segments all have the same size.
SMALL_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
# Requests of the large pool below `LARGE_BYTES` get segments of `LARGE_SEGMENT_BYTES`; a larger
# request gets its own segment, rounded up to a multiple of `ROUND_BYTES`.
LARGE_BYTES = 10 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
# Expandable segments grow by multiples of `EXPAND_BYTES`, or of `SMALL_SEGMENT_BYTES` in the small
# pool.
EXPAND_BYTES = 20 * MIB
ROUND_BYTES = 2 * MIB
# Distance between the addresses of two expandable segments, so large that they never meet.
_APART = 1 << 60


@dataclass(slots=True, eq=False)
class SegmentPool:
    """The pieces of memory for either the small or the large requests of one stream.

    `free` is the sorted list of free pieces as (size, address, piece). `last` is the last piece of
    the expandable segment.
    """

    small: bool
    free: list[tuple[int, int, SegmentPiece]] = field(
        default_factory=list["tuple[int, int, SegmentPiece]"]
    )
    last: SegmentPiece | None = None


@dataclass(slots=True, eq=False)
class SegmentPiece:
    """A part of a segment of device memory; `size` is in bytes, a multiple of 512.

    Callers keep a piece until they free the piece; only the allocator changes pieces.
    """

    address: int
    size: int
    pool: SegmentPool
    free: bool = False
    before: SegmentPiece | None = None
    after: SegmentPiece | None = None


class Allocator:
    """A counter of the memory that PyTorch would reserve on a device; it is not thread-safe.

    Args:
        limit_bytes: Device memory that may be reserved, in bytes (default None: no limit). At the
            limit, segments without a piece in use are given back to the device. If the segments in
            use do not fit, the reservation exceeds the limit, so that `peak_reserved` is the memory
            that would be needed.
        expandable: Whether each pool has one segment that grows (`expandable_segments:True`). A
            segment that grows never gives memory back to the device.

    `allocated` and `reserved` are the current bytes, and `peak_allocated` and `peak_reserved` are
    the maxima so far. Pieces in use count with their rounded size, as in
    `torch.cuda.memory_allocated`.
    """

    def __init__(self, limit_bytes: int | None = None, *, expandable: bool = False) -> None:
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self._limit = limit_bytes
        self._expandable = expandable
        self._end = 0
        # The large and the small pool of each stream.
        self._pools: dict[int, tuple[SegmentPool, SegmentPool]] = {}
        self._growing = 0

    def allocate(self, num_bytes: int, stream: int = 0) -> SegmentPiece:
        """Return a piece of memory that is large enough for a request.

        Args:
            num_bytes: Requested size in bytes, at least 0; a piece of size 0 has no address.
            stream: Identifier of the stream that makes the request (default 0).
        """
        size = rounded(num_bytes)
        pools = self._pools.get(stream)
        if pools is None:
            pools = self._pools[stream] = SegmentPool(small=False), SegmentPool(small=True)
        pool = pools[size <= SMALL_BYTES]
        if num_bytes == 0:
            return SegmentPiece(-1, 0, pool)
        # Take the smallest free piece that is large enough; among equal sizes, the lowest address.
        place = bisect_left(pool.free, (size,))
        piece = pool.free.pop(place)[2] if place < len(pool.free) else self._segment(size, pool)
        if piece.size > size:
            self._split(piece, size)
        piece.free = False
        self.allocated += piece.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return piece

    def free(self, piece: SegmentPiece) -> None:
        """Free a piece that `allocate` returned; the caller must not use it again."""
        if piece.size == 0:
            return
        assert not piece.free, piece
        self.allocated -= piece.size
        piece.free = True
        after, before = piece.after, piece.before
        if after is not None and after.free:
            _forget(after)
            _join(piece, after)
        if before is not None and before.free:
            _forget(before)
            _join(before, piece)
            piece = before
        _keep(piece)

    def release(self) -> None:
        """Give segments without a piece in use back to the device."""
        if self._expandable:
            return
        for pool in (pool for pools in self._pools.values() for pool in pools):
            for size, _, piece in list(pool.free):
                if piece.before is None and piece.after is None:
                    _forget(piece)
                    self.reserved -= size

    def _segment(self, size: int, pool: SegmentPool) -> SegmentPiece:
        """Reserve a segment for a request."""
        if self._expandable:
            return self._grown(size, pool)
        num_bytes = segment_bytes(size)
        self._reserve(num_bytes)
        piece = SegmentPiece(self._end, num_bytes, pool)
        # Segments never touch, so that pieces of two segments are never neighbours.
        self._end += num_bytes + UNIT_BYTES
        return piece

    def _grown(self, size: int, pool: SegmentPool) -> SegmentPiece:
        """Grow the segment of a pool until its free end is large enough for a request."""
        last = pool.last
        if last is not None and last.free:
            _forget(last)
        else:
            address = self._growing * _APART if last is None else last.address + last.size
            self._growing += last is None
            last = SegmentPiece(address, 0, pool, before=last)
            if last.before is not None:
                last.before.after = last
            pool.last = last
        page = SMALL_SEGMENT_BYTES if pool.small else EXPAND_BYTES
        more = -(-(size - last.size) // page) * page
        self._reserve(more)
        last.size += more
        return last

    def _reserve(self, num_bytes: int) -> None:
        if self._limit is not None and self.reserved + num_bytes > self._limit:
            self.release()
        self.reserved += num_bytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _split(self, piece: SegmentPiece, size: int) -> None:
        """Cut the unused end off a piece, unless that end is too small to be useful."""
        remainder = piece.size - size
        fine = piece.pool.small or self._expandable
        if remainder < UNIT_BYTES or (not fine and remainder <= SMALL_BYTES):
            return
        other = SegmentPiece(piece.address + size, remainder, piece.pool, True, piece, piece.after)
        if piece.after is not None:
            piece.after.before = other
        elif piece.pool.last is piece:
            piece.pool.last = other
        piece.size, piece.after = size, other
        _keep(other)


def _join(left: SegmentPiece, right: SegmentPiece) -> None:
    left.size += right.size
    left.after = right.after
    if right.after is not None:
        right.after.before = left
    elif right.pool.last is right:
        right.pool.last = left


def _keep(piece: SegmentPiece) -> None:
    insort(piece.pool.free, (piece.size, piece.address, piece))


def _forget(piece: SegmentPiece) -> None:
    free = piece.pool.free
    del free[bisect_left(free, (piece.size, piece.address))]


def rounded(num_bytes: int) -> int:
    """Return a size in bytes, rounded up to a multiple of 512; 0 becomes 512."""
    return -(-num_bytes // UNIT_BYTES) * UNIT_BYTES or UNIT_BYTES


def segment_bytes(size: int) -> int:
    """Return the bytes of the segment that is reserved for a request.

    Args:
        size: Rounded size of the request, in bytes.
    """
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // ROUND_BYTES) * ROUND_BYTES
