"""Files of tensors in the safetensors format, and the dtypes that the format has.

A file is 8 bytes with the size of the header (little endian), the header (JSON), and the bytes of
all tensors without gaps. The format is described at https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNMENT = 64  # the format asks for 8; 64 is a cache line
# PyTorch's HuggingFaceStorageReader finds the offsets of slices under this key of the header.
_SLICES_KEY = "DCP_SHARDING_INFO"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A box of a tensor that a rank writes.

    Args:
        tensor: Name of the tensor.
        key: Name of the box in the header of the file.
        dtype: Name of the dtype, a key of `DTYPES`.
        tensor_shape: Number of elements of the whole tensor in each dimension.
        offsets: Index of the first element of the box in each dimension of the tensor.
        shape: Number of elements of the box in each dimension.
    """

    tensor: str
    key: str
    dtype: str
    tensor_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Size of the box in bytes."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The header of a file, and the places of its boxes.

    Args:
        header: First bytes of the file.
        begins: Position in the file of each box, in the order of the boxes.
        num_bytes: Size of the file in bytes.
    """

    header: bytes
    begins: tuple[int, ...]
    num_bytes: int


def lay_out(pieces: Sequence[Piece]) -> Layout:
    """Return the layout of a file with these boxes, each aligned to the size of its elements."""
    sizes = [DTYPES[piece.dtype].itemsize for piece in pieces]
    order = sorted(range(len(pieces)), key=lambda index: -sizes[index])
    begins = [0] * len(pieces)
    position = 0
    for index in order:
        begins[index] = position
        position += pieces[index].num_bytes
    header = _header([(pieces[index], begins[index]) for index in order])
    return Layout(
        header=header,
        begins=tuple(len(header) + begin for begin in begins),
        num_bytes=len(header) + position,
    )


def _header(placed: Sequence[tuple[Piece, int]]) -> bytes:
    slices = {piece.key: {"saved_offsets": piece.offsets} for piece, _ in placed}
    fields: dict[str, object] = {"__metadata__": {"format": "pt", _SLICES_KEY: json.dumps(slices)}}
    for piece, begin in placed:
        fields[piece.key] = {
            "dtype": piece.dtype,
            "shape": piece.shape,
            "data_offsets": (begin, begin + piece.num_bytes),
        }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
