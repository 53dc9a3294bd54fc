"""Memory that is aligned to cache lines."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.infer.graph.graph import Array

ALIGNMENT = 64  # bytes of a cache line, and of the widest vector


def aligned(dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    """Return a new array of zeros whose memory begins at a cache line."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    block = np.zeros(size + ALIGNMENT, np.uint8)
    begin = -block.ctypes.data % ALIGNMENT
    return block[begin : begin + size].view(dtype).reshape(tuple(shape))
