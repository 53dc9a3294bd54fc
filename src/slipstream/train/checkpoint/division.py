"""The division of replicated tensors among the ranks: each rank writes an equal share of bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

Rows = tuple[int, int]

# Smaller tensors are written by rank 0 as a whole. They include the running statistics of batch
# normalization (at most 8 KB each), which differ between the ranks of a data-parallel training.
WHOLE_BYTES = 64 * 2**10
# Boxes may cut a tensor along this many dimensions, because each then has 256 corners to count.
# PyTorch cuts along one dimension at most for each dimension of a mesh. Chosen by hand.
MOST_CUT_DIMENSIONS = 8


def split_dimension(shape: Sequence[int]) -> int | None:
    """Return the first dimension of more than one element; None if the tensor has no such one.

    A range of rows of this dimension is contiguous in memory.
    """
    return next((index for index, length in enumerate(shape) if length > 1), None)


def divide(
    tensors: Mapping[str, tuple[Sequence[int], int]], rank: int, num_ranks: int
) -> dict[str, Rows]:
    """Return the rows of each tensor that a rank writes: the first row, and the row after the last.

    Large tensors are laid end to end, in their order, and cut at the ends of the ranks' shares; a
    cut within a tensor moves to the nearest row of its `split_dimension`. So shares differ by less
    than a row. All ranks must pass the same tensors.

    Args:
        tensors: Shape and size of an element in bytes of each replicated tensor, by name.
        rank: Rank whose share is returned, 0 to num_ranks - 1.
        num_ranks: Number of ranks, 1 or more.
    """
    sizes = {name: prod(shape) * itemsize for name, (shape, itemsize) in tensors.items()}
    small = {name: size for name, size in sizes.items() if size < WHOLE_BYTES or num_ranks == 1}
    large = {name: size for name, size in sizes.items() if name not in small}
    share: dict[str, Rows] = {}
    if rank == 0:
        share = {name: (0, num_rows(tensors[name][0])) for name in small}
    cuts = _cuts(sum(small.values()), sum(large.values()), rank, num_ranks)
    begin = 0
    for name, size in large.items():
        rows = num_rows(tensors[name][0])
        first, after = (min(max(round((cut - begin) * rows / size), 0), rows) for cut in cuts)
        if first < after:
            share[name] = (first, after)
        begin += size
    return share


def num_rows(shape: Sequence[int]) -> int:
    """Return the number of rows into which a tensor can be divided, 0 or more."""
    dimension = split_dimension(shape)
    return shape[dimension] if dimension is not None else min(prod(shape), 1)


def _cuts(small_bytes: int, large_bytes: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """Return the begin and the end of a rank's share in the row of large tensors, in bytes."""
    share = (small_bytes + large_bytes) // num_ranks
    first = min(max(share - small_bytes, 0), large_bytes) if num_ranks > 1 else large_bytes
    rest = large_bytes - first
    if rank == 0:
        return 0, first
    begin, end = (first + rest * number // (num_ranks - 1) for number in (rank - 1, rank))
    return begin, end


def box(shape: Sequence[int], rows: Rows) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return offsets and shape of a range of rows of a tensor."""
    dimension = split_dimension(shape)
    if dimension is None:
        return (0,) * len(shape), tuple(shape)
    offsets = [0] * len(shape)
    lengths = list(shape)
    offsets[dimension], lengths[dimension] = rows[0], rows[1] - rows[0]
    return tuple(offsets), tuple(lengths)


def overlap(
    first: tuple[Sequence[int], Sequence[int]], second: tuple[Sequence[int], Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return offsets and shape of the elements that two boxes share; None if there are none."""
    begins = [max(a, b) for a, b in zip(first[0], second[0], strict=True)]
    ends = [
        min(a + n, b + m)
        for a, n, b, m in zip(first[0], first[1], second[0], second[1], strict=True)
    ]
    lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
    if any(length <= 0 for length in lengths):
        return None
    return tuple(begins), tuple(lengths)


def is_tiled(shape: Sequence[int], boxes: Iterable[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """Return whether boxes have each element of a tensor exactly once.

    This is so if their corners, counted with signs, are those of the whole tensor: the counts are
    the differences, along all dimensions, of the number of boxes at each element. 10,000 boxes that
    cut two dimensions take some 0.03 s.

    Args:
        shape: Number of elements of the tensor in each dimension.
        boxes: Offsets and shape of each box.
    """
    filled = [box for box in boxes if prod(box[1])]
    if prod(shape) == 0:
        return not filled
    whole = ((0,) * len(shape), tuple(shape))
    cut = [d for d in range(len(shape)) if any((o[d], n[d]) != (0, shape[d]) for o, n in filled)]
    if len(cut) > MOST_CUT_DIMENSIONS:
        return False
    signs = [(-1) ** sum(ends) for ends in product((0, 1), repeat=len(cut))]
    corners: defaultdict[tuple[int, ...], int] = defaultdict(int)
    for (offsets, lengths), count in [(whole, -1), *((box, 1) for box in filled)]:
        edges = [(offsets[d], offsets[d] + lengths[d]) for d in cut]
        for corner, sign in zip(product(*edges), signs, strict=True):
            corners[corner] += count * sign
    return not any(corners.values())
