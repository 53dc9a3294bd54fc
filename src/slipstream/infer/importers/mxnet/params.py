"""Reader of MXNet's .params files.

The format is defined in https://github.com/apache/mxnet/blob/v1.9.x/src/ndarray/ndarray.cc. A file
has a list of arrays and a list of their names, in little-endian byte order. A .params file contains
no code.
"""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.damage import DamagedFileError, parse_file

LIST = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
MOST_DIMENSIONS = 32  # the limit of NumPy 1
BFLOAT16 = 12
DTYPES = {0: "<f4", 1: "<f8", 2: "<f2", 3: "u1", 4: "<i4", 5: "i1", 6: "<i8", 7: "?"}
DTYPES[BFLOAT16] = "<u2"


def read_params(path: Path) -> dict[str, Array]:
    """Return the arrays by name.

    In the file, the name of a trained array begins with "arg:", and the name of any other array
    with "aux:"; both prefixes are removed.

    Raises:
        UsageError: If the file cannot be read, is damaged, or has sparse arrays.
    """
    arrays = parse_file(path, ".params file of MXNet", lambda data: _Reader(data).list())
    return {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in arrays.items()}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def list(self) -> dict[str, Array]:
        magic, _, count = self._take("<QQQ")
        if magic != LIST:
            raise DamagedFileError(f"the file begins with {magic:#x}, not {LIST:#x}")
        arrays = [self._array() for _ in self._many(count, 8)]
        (num_names,) = self._take("<Q")
        names = [self._name() for _ in self._many(num_names, 8)]
        if len(names) != len(arrays):
            raise DamagedFileError(f"the file has {len(arrays)} arrays and {len(names)} names")
        return dict(zip(names, arrays, strict=True))

    def _name(self) -> str:
        (length,) = self._take("<Q")
        return self._bytes(length).decode(errors="replace")

    def _array(self) -> Array:
        (magic,) = self._take("<I")
        if magic in (V2, V3):
            (storage,) = self._take("<i")
            if storage not in (-1, 0):
                raise DamagedFileError("an array is sparse; save it as a dense one")
        shape = self._shape(magic)
        if shape is None:
            return np.zeros(0, np.float32)
        _, _, dtype = self._take("<iii")  # the device and its number come first
        if dtype not in DTYPES:
            raise DamagedFileError(
                f"an array has the dtype {dtype}; allowed: {min(DTYPES)} to {max(DTYPES)}"
            )
        kind = np.dtype(DTYPES[dtype])
        array = np.frombuffer(self._bytes(math.prod(shape) * kind.itemsize), kind).reshape(shape)
        if dtype == BFLOAT16:
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array

    def _shape(self, magic: int) -> tuple[int, ...] | None:
        """Read and return a shape; return None for an array that has no elements and no data."""
        if magic in (V1, V2, V3):
            (rank,) = self._take("<i")
            size = 8
        else:  # the oldest form begins with the number of dimensions
            rank, size = magic, 4
        is_none = rank == -1 or (rank == 0 and magic != V3)
        if is_none:
            return None
        if not 0 <= rank <= MOST_DIMENSIONS:
            raise DamagedFileError(f"an array has {rank} dimensions")
        shape = self._take(f"<{rank}{'q' if size == 8 else 'I'}")
        if any(length < 0 for length in shape):
            raise DamagedFileError(f"an array has the shape {shape}")
        return shape

    def _many(self, count: int, least: int) -> range:
        """Return a range over `count` items; one item has at least `least` bytes in the file.

        Raises:
            DamagedFileError: If the file is too short for `count` items.
        """
        if count * least > len(self._data) - self._at:
            raise DamagedFileError(f"the file is too short for {count} arrays")
        return range(count)

    def _take(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))

    def _bytes(self, length: int) -> bytes:
        piece = self._data[self._at : self._at + length]
        if len(piece) != length:
            raise DamagedFileError(f"{length - len(piece)} bytes are missing")
        self._at += length
        return piece
