"""The part of a tensor that this rank has, and the boxes that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate

from slipstream.errors import UsageError
from slipstream.train.checkpoint.division import box, divide, split_dimension
from slipstream.train.checkpoint.tensor_file import NAMES, Piece
from slipstream.train.checkpoint.tree import Leaf

Box: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...]]"


def local_part(tensor: torch.Tensor) -> tuple[torch.Tensor, Box] | None:
    """Return the local tensor of this rank, and its offsets and shape in the whole tensor.

    A tensor that is no DTensor is its own local tensor, with offsets 0. The result is None if this
    rank has no part of a DTensor.
    """
    if not isinstance(tensor, DTensor):
        return tensor, ((0,) * tensor.ndim, tuple(tensor.shape))
    if tensor.device_mesh.get_coordinate() is None:
        return None
    chunks = cast("list[Any]", tensor.__create_chunk_list__())
    if not chunks:
        return None
    chunk = chunks[0]
    return tensor.to_local(), (tuple(chunk.offsets), tuple(chunk.sizes))


def writes_part(tensor: DTensor, name: str) -> bool:
    """Return whether this rank writes its part: of equal parts, the first rank writes its own.

    Raises UsageError for a tensor whose values are partial sums.
    """
    if any(isinstance(placement, Partial) for placement in tensor.placements):
        raise UsageError(
            f"the tensor {name!r} has partial sums ({tensor.placements}); redistribute it first"
        )
    coordinates = tensor.device_mesh.get_coordinate()
    if coordinates is None:
        return False
    is_empty = tensor.numel() == 0  # all parts are equal then
    return all(
        number == 0 or not (is_empty or isinstance(placement, Replicate))
        for number, placement in zip(coordinates, tensor.placements, strict=True)
    )


def pieces_of(
    leaves: Mapping[str, Leaf], rank: int, num_ranks: int
) -> list[tuple[Piece, torch.Tensor]]:
    """Return the boxes that this rank writes, with their values.

    Args:
        leaves: Tensors of the state by name, the same on all ranks except those `of_rank`.
        rank: Rank of this process.
        num_ranks: Number of ranks.

    Raises:
        UsageError: A tensor has a dtype that safetensors lacks, or a layout other than strided.
    """
    for name, leaf in leaves.items():
        _check(leaf.tensor, name)
    replicated = {
        name: (tuple(leaf.tensor.shape), leaf.tensor.itemsize)
        for name, leaf in leaves.items()
        if not leaf.of_rank and not isinstance(leaf.tensor, DTensor)
    }
    shares = divide(replicated, rank, num_ranks)
    pieces: list[tuple[Piece, torch.Tensor]] = []
    for name, leaf in leaves.items():
        if name not in replicated:
            pieces += _own_part(name, leaf)
        elif name in shares:
            place = box(leaf.tensor.shape, shares[name])
            pieces.append((_piece(name, leaf.tensor, place), _narrowed(leaf.tensor, place)))
    return pieces


def _own_part(name: str, leaf: Leaf) -> list[tuple[Piece, torch.Tensor]]:
    if isinstance(leaf.tensor, DTensor) and not (leaf.of_rank or writes_part(leaf.tensor, name)):
        return []
    part = local_part(leaf.tensor)
    if part is None or (part[0].numel() == 0 and leaf.tensor.numel() > 0):
        return []
    return [(_piece(name, leaf.tensor, part[1]), part[0])]


def _piece(name: str, tensor: torch.Tensor, place: Box) -> Piece:
    return Piece(
        tensor=name,
        key=name,
        dtype=NAMES[tensor.dtype],
        tensor_shape=tuple(tensor.shape),
        offsets=place[0],
        shape=place[1],
    )


def _narrowed(tensor: torch.Tensor, place: Box) -> torch.Tensor:
    dimension = split_dimension(tensor.shape)
    if dimension is None:
        return tensor
    return tensor.narrow(dimension, place[0][dimension], place[1][dimension])


def _check(tensor: torch.Tensor, name: str) -> None:
    if tensor.dtype not in NAMES:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in NAMES)
        raise UsageError(f"the tensor {name!r} has dtype {tensor.dtype}; allowed: {allowed}")
    if tensor.layout != torch.strided or tensor.is_meta:
        raise UsageError(
            f"the tensor {name!r} has layout {tensor.layout} on {tensor.device.type}; allowed:"
            " strided tensors with memory"
        )
