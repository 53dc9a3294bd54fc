"""Copies of tensors in host memory, in the form of the file that is written from them."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence

import torch

from slipstream.train.checkpoint.tensor_file import DTYPES, Layout, Piece, lay_out


class HostImage:
    """Host memory with the bytes of one file, used again by every save.

    The memory is aligned to pages, so that it can be written past the page cache, and asks for huge
    pages, which makes its first use faster. It grows if a state needs more.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._num_bytes = 0

    @property
    def data(self) -> memoryview:
        """Bytes of the file."""
        assert self._memory is not None
        return memoryview(self._memory)[: self._num_bytes]

    def take(self, pieces: Sequence[tuple[Piece, torch.Tensor]]) -> Layout:
        """Copy the boxes of a file, and return their layout.

        The call blocks until the copies are complete, so the tensors may change after it.

        Args:
            pieces: Boxes with their values, on any device and with any strides.
        """
        layout = lay_out([piece for piece, _ in pieces])
        bytes_of_file = self._reserve(layout.num_bytes)
        bytes_of_file[: len(layout.header)] = torch.frombuffer(
            bytearray(layout.header), dtype=torch.uint8
        )
        for (piece, value), begin in zip(pieces, layout.begins, strict=True):
            if piece.num_bytes:
                target = bytes_of_file[begin : begin + piece.num_bytes].view(DTYPES[piece.dtype])
                target.view(piece.shape).copy_(value)
        return layout

    def _reserve(self, num_bytes: int) -> torch.Tensor:
        if self._memory is None or len(self._memory) < num_bytes:
            self._memory = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(AttributeError, OSError):  # kernels without huge pages
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._num_bytes = num_bytes
        return torch.frombuffer(self._memory, dtype=torch.uint8, count=num_bytes)
