"""Reading of tensors from a checkpoint, whatever number of ranks wrote it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import Any

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
    by_file: defaultdict[int, list[tuple[SavedSlice, Box, Target]]] = defaultdict(list)
    for target in targets:
        for saved in manifest.tensors[target.name].slices:
            common = overlap((saved.offsets, saved.shape), target.box)
            if common is not None:
                by_file[saved.file].append((saved, common, target))
    for index, reads in by_file.items():
        file = manifest.files[index]
        with CheckedFile(storage, joined(folder_of(manifest.step), file.name), file) as checked:
            for saved, common, target in sorted(reads, key=lambda read: read[0].begin):
                dtype = DTYPES[manifest.tensors[target.name].dtype]
                _read(checked, saved, common, target, dtype)


def _read(
    file: CheckedFile, saved: SavedSlice, common: Box, target: Target, dtype: torch.dtype
) -> None:
    """Copy the elements that a saved box and a target share."""
    rows = _rows(saved, common)
    begins = [begin - start for begin, start in zip(common[0], target.box[0], strict=True)]
    destination = _narrowed(target.tensor, begins, common[1])
    begin = saved.begin + rows.first * rows.row_elements * dtype.itemsize
    if rows.shape == common[1] and destination.dtype == dtype and _is_plain(destination):
        file.read(begin, _bytes_of(destination))
        return
    read = torch.empty(rows.shape, dtype=dtype)
    file.read(begin, _bytes_of(read))
    inner = [begin - start for begin, start in zip(common[0], saved.offsets, strict=True)]
    if rows.dimension is not None:
        inner[rows.dimension] = 0
    destination.copy_(_narrowed(read, inner, common[1]))


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


def _narrowed(tensor: torch.Tensor, begins: list[int], shape: tuple[int, ...]) -> torch.Tensor:
    for dimension, (begin, length) in enumerate(zip(begins, shape, strict=True)):
        tensor = tensor.narrow(dimension, begin, length)
    return tensor


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU."""
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)
