"""Checks that the fields of a manifest can describe a checkpoint.

A checksum detects accidents. Whoever changes a manifest on purpose makes a new checksum, so the
fields are checked too, before anything is read or allocated by them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from math import prod
from typing import Any, cast

from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.division import is_tiled
from slipstream.train.checkpoint.manifest import (
    BLOCK_BYTES,
    CheckpointManifest,
    SavedFile,
    SavedSlice,
    SavedTensor,
    is_save,
)
from slipstream.train.checkpoint.tensor_file import DTYPES
from slipstream.train.checkpoint.tree import Json, kind_of

_LATEST = 32503680000.0  # the year 3000, in seconds since 1970


def check_manifest(manifest: CheckpointManifest, name: str) -> None:
    """Check the types and ranges of all fields.

    Args:
        manifest: Manifest as it was read.
        name: Name of its file for messages.

    Raises:
        CheckpointError: A field has a value that no save writes.
    """
    try:
        _check_fields(manifest)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{name} has fields that no save writes: {error}; take another checkpoint"
        ) from error


def _check_fields(manifest: CheckpointManifest) -> None:
    _check_number(manifest.step, "step")
    _check_number(manifest.num_ranks, "num_ranks", least=1)
    _check_text(manifest.save, "save")
    if not is_save(manifest.save):
        raise ValueError(f"save is {manifest.save!r}; allowed: an identity such as 9f2c41d0-3")
    if type(manifest.time) not in (int, float) or not 0 <= manifest.time < _LATEST:
        raise ValueError(f"time is {manifest.time!r}; allowed: seconds since 1970, up to 3000")
    for file in manifest.files:
        _check_file(file)
    for name, tensor in manifest.tensors.items():
        _check_tensor(name, tensor, manifest.files)
    state: Json = manifest.state
    if not isinstance(state, dict) or not _is_node(state, manifest.tensors):
        raise ValueError("the tree of the state is none that a save writes")


def _check_number(value: object, what: str, least: int = 0) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"{what} is {value!r}; allowed: whole numbers from {least} on")


def _check_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}; allowed: a text")


def _check_numbers(values: tuple[object, ...], what: str) -> None:
    for value in values:
        _check_number(value, what)


def _check_file(file: SavedFile) -> None:
    _check_number(file.num_bytes, "num_bytes")
    blocks = -(-file.num_bytes // BLOCK_BYTES)
    if len(file.checksums) != blocks:
        raise ValueError(
            f"{file.name} has {len(file.checksums)} checksums for {file.num_bytes} bytes; expected:"
            f" {blocks}"
        )
    for checksum in file.checksums:
        _check_text(checksum, f"a checksum of {file.name}")


def _check_tensor(name: str, tensor: SavedTensor, files: tuple[SavedFile, ...]) -> None:
    if tensor.dtype not in DTYPES:
        raise ValueError(f"the dtype of {name!r} is {tensor.dtype!r}; allowed: {list(DTYPES)}")
    _check_numbers(tensor.shape, f"the shape of {name!r}")
    for box in tensor.slices:
        _check_slice(name, tensor, box, files)
    # Memory for a tensor is allocated by its shape, so all of its elements must be there.
    saved = sum(prod(box.shape) for box in tensor.slices)
    if saved != prod(tensor.shape):
        raise ValueError(f"{name!r} has {prod(tensor.shape)} elements, but boxes of {saved}")
    if not is_tiled(tensor.shape, ((box.offsets, box.shape) for box in tensor.slices)):
        raise ValueError(f"the boxes of {name!r} overlap, so they lack some of its elements")


def _check_slice(
    name: str, tensor: SavedTensor, box: SavedSlice, files: tuple[SavedFile, ...]
) -> None:
    _check_text(box.key, f"the key of a box of {name!r}")
    _check_numbers((box.file, box.begin), f"the place of {name!r}")
    _check_numbers((*box.offsets, *box.shape), f"a box of {name!r}")
    is_inside = len(box.offsets) == len(box.shape) == len(tensor.shape) and all(
        offset + count <= size
        for offset, count, size in zip(box.offsets, box.shape, tensor.shape, strict=True)
    )
    end = box.begin + prod(box.shape) * DTYPES[tensor.dtype].itemsize
    if not is_inside or box.file >= len(files) or end > files[box.file].num_bytes:
        raise ValueError(f"a box of {name!r} lies outside of its tensor or of the files: {box}")


def _is_node(node: Json, tensors: dict[str, SavedTensor]) -> bool:
    """Return whether a node of a tree, with all nodes below it, has one of the forms of `tree`."""
    kind = kind_of(node)
    if kind == "$tensor":
        is_flag = isinstance(node.get("array"), bool)
        return is_flag and node.keys() == {kind, "array"} and node[kind] in tensors
    if kind is not None:
        check = _CHECKS.get(kind)
        return check is not None and len(node) == 1 and check(node[kind], tensors)
    if isinstance(node, dict):
        return all(_is_node(item, tensors) for item in cast("dict[str, Json]", node).values())
    if isinstance(node, list):
        return all(_is_node(item, tensors) for item in cast("list[Json]", node))
    return True


def _are_nodes(items: Json, tensors: dict[str, SavedTensor]) -> bool:
    return isinstance(items, list) and _is_node(items, tensors)


def _are_entries(items: Json, tensors: dict[str, SavedTensor]) -> bool:
    return isinstance(items, list) and all(
        isinstance(item, list)
        and len(cast("list[Json]", item)) == 2
        and _is_key(item[0])
        and _is_node(item[1], tensors)
        for item in cast("list[Json]", items)
    )


def _is_key(node: Json) -> bool:
    if isinstance(node, dict):
        return kind_of(node) in ("$float", "$bytes") and _is_node(node, {})
    return not isinstance(node, list)


def _are_parts(parts: Json, tensors: dict[str, SavedTensor]) -> bool:
    return isinstance(parts, dict) and all(
        rank.isdecimal() and _is_node(part, tensors)
        for rank, part in cast("dict[str, Json]", parts).items()
    )


def _is_coded(read: Callable[[str], object]) -> Callable[[Json, dict[str, SavedTensor]], bool]:
    def check(value: Any, _: dict[str, SavedTensor]) -> bool:
        return isinstance(value, str) and read(value) is not None

    return check


_CHECKS: dict[str, Callable[[Json, dict[str, SavedTensor]], bool]] = {
    "$dict": _are_entries,
    "$tuple": _are_nodes,
    "$ranks": _are_parts,
    "$float": _is_coded(float),
    "$bytes": _is_coded(base64.b64decode),
}
