"""Reading of tensors from a checkpoint, whatever number of ranks wrote it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import torch

from slipstream.train.checkpoint.checked_file import CheckedFile
from slipstream.train.checkpoint.division import overlap, split_dimension
from slipstream.train.checkpoint.manifest import CheckpointManifest, SavedSlice, folder_of
from slipstream.train.checkpoint.sharding import Box
from slipstream.train.checkpoint.storage import Storage, joined
from slipstream.train.checkpoint.tensor_file import DTYPES


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A box of a saved tensor, and the tensor that it is copied to.

    Args:
        name: Name of the saved tensor.
        box: Offsets and shape of the box in the saved tensor.
        tensor: Tensor of the shape of the box, on any device.
    """

    name: str
    box: Box
    tensor: torch.Tensor


class SourceFile(Protocol):
    """A file of a checkpoint from which bytes are read, on disk or elsewhere."""

    def read(self, begin: int, target: memoryview) -> None:
        """Fill the target with the bytes of the file from `begin` on."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """The elements that a saved box and a target share, as they are read.

    Args:
        target: Tensor that gets them.
        dtype: Type of the saved elements.
        begin: Position of the first byte in the file.
        common: Offsets and shape of the shared elements in the whole tensor.
        shape: Shape of the rows that are read, which have the shared elements.
        inner: Index of the first shared element in these rows.
    """

    target: Target
    dtype: torch.dtype
    begin: int
    common: Box
    shape: tuple[int, ...]
    inner: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Number of bytes to read from `begin` on."""
        return prod(self.shape) * self.dtype.itemsize


def read_targets(storage: Storage, manifest: CheckpointManifest, targets: list[Target]) -> None:
    """Fill the targets from the files of a checkpoint; blocks.

    Each file is read from its begin to its end, and only the blocks that the targets need. Their
    checksums are compared.

    Args:
        storage: Storage of all checkpoints.
        manifest: Manifest of the checkpoint.
        targets: Boxes to read. A target of another dtype than the saved tensor's gets converted
            values.

    Raises:
        CheckpointError: A file is missing or damaged. Some targets are filled then.
    """
    for index, reads in plan_reads(manifest, targets).items():
        file = manifest.files[index]
        with CheckedFile(storage, joined(folder_of(manifest.step), file.name), file) as checked:
            fill(reads, checked)


def plan_reads(manifest: CheckpointManifest, targets: list[Target]) -> dict[int, list[Read]]:
    """Return what the targets need of each file, by its index, in the order of the bytes."""
    by_file: defaultdict[int, list[Read]] = defaultdict(list)
    for target in targets:
        tensor = manifest.tensors[target.name]
        for saved in tensor.slices:
            common = overlap((saved.offsets, saved.shape), target.box)
            if common is not None:
                read = _planned(saved, common, target, DTYPES[tensor.dtype])
                by_file[saved.file].append(read)
    for reads in by_file.values():
        reads.sort(key=lambda read: read.begin)
    return by_file


def fill(reads: Sequence[Read], file: SourceFile) -> None:
    """Read from a file, in the order of the reads, and copy to the targets; blocks."""
    for read in reads:
        begins = [a - b for a, b in zip(read.common[0], read.target.box[0], strict=True)]
        destination = _narrowed(read.target.tensor, begins, read.common[1])
        if (
            read.shape == read.common[1]
            and destination.dtype == read.dtype
            and _has_plain_memory(destination)
        ):
            file.read(read.begin, _bytes_of(destination))
            continue
        rows = torch.empty(read.shape, dtype=read.dtype, device="cpu")
        file.read(read.begin, _bytes_of(rows))
        destination.copy_(_narrowed(rows, read.inner, read.common[1]))


def _planned(saved: SavedSlice, common: Box, target: Target, dtype: torch.dtype) -> Read:
    rows = _rows(saved, common)
    inner = [begin - start for begin, start in zip(common[0], saved.offsets, strict=True)]
    if rows.dimension is not None:
        inner[rows.dimension] = 0
    return Read(
        target=target,
        dtype=dtype,
        begin=saved.begin + rows.first * rows.row_elements * dtype.itemsize,
        common=common,
        shape=rows.shape,
        inner=tuple(inner),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """The rows of a saved box that have the wanted elements; they lie in one piece."""

    dimension: int | None
    first: int
    row_elements: int
    shape: tuple[int, ...]


def _rows(saved: SavedSlice, common: Box) -> _Rows:
    dimension = split_dimension(saved.shape)
    if dimension is None:
        return _Rows(dimension=None, first=0, row_elements=0, shape=saved.shape)
    shape = list(saved.shape)
    shape[dimension] = common[1][dimension]
    return _Rows(
        dimension=dimension,
        first=common[0][dimension] - saved.offsets[dimension],
        row_elements=prod(saved.shape[dimension + 1 :]),
        shape=tuple(shape),
    )


def _narrowed(tensor: torch.Tensor, begins: Sequence[int], shape: tuple[int, ...]) -> torch.Tensor:
    for dimension, (begin, length) in enumerate(zip(begins, shape, strict=True)):
        tensor = tensor.narrow(dimension, begin, length)
    return tensor


def _has_plain_memory(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor are the bytes of one piece of host memory.

    They are not if a bit of the tensor says that its memory has their conjugates or negatives.
    """
    is_lazy = tensor.is_conj() or tensor.is_neg()
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not is_lazy


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU."""
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)
