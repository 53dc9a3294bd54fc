"""Reader of Kaldi's basic types, text or binary: tokens, numbers, vectors, and matrices.

The formats are defined in https://github.com/kaldi-asr/kaldi/blob/master/src/base/io-funcs.h and in
src/matrix of the same repository (kaldi-matrix.cc, kaldi-vector.cc, compressed-matrix.cc).
"""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import struct

import numpy as np

from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.damage import DamagedFileError

SPACE = b" \t\r\n"
ELEMENTS = {"F": np.dtype("<f4"), "D": np.dtype("<f8")}
COMPRESSED = ("CM", "CM2", "CM3")
PERCENTILES = 1 / 65535  # one step of a 16-bit percentile, as a part of the matrix's range
LONGEST_TOKEN = 200  # bytes; chosen by hand


class KaldiStream:
    """A reader of values that follow one another in a file.

    A public method raises DamagedFileError if the next bytes are no value of the method's type.
    """

    def __init__(self, data: bytes, *, is_binary: bool, at: int = 0) -> None:
        self.data = data
        self.is_binary = is_binary
        self.at = at

    def token(self) -> str:
        """Read the next word."""
        while self.data[self.at : self.at + 1] in (b" ", b"\n", b"\t", b"\r"):
            self.at += 1
        window = self.data[self.at : self.at + LONGEST_TOKEN]
        word = window.split(None, 1)[0] if window else b""
        if not word or len(word) == LONGEST_TOKEN:
            raise DamagedFileError(f"a word is missing at byte {self.at}")
        self.at += len(word)
        if self.is_binary:
            self.at += 1  # one space ends the token; more could be the first bytes of a number
        return word.decode("ascii", errors="replace")

    def line(self) -> str:
        """Read and return the rest of the current line, without spaces at its ends."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise DamagedFileError("the file ends inside the configuration")
        text = self.data[self.at : end].decode("utf-8", errors="replace")
        self.at = end + 1
        return text.strip()

    def skip_past(self, mark: str) -> None:
        """Move to the position after the next `mark`."""
        position = self.data.find(mark.encode(), self.at)
        if position < 0:
            raise DamagedFileError(f"there is no {mark}")
        self.at = position + len(mark) + self.is_binary

    def integer(self) -> int:
        """Read an integer; in a binary file, it has 32 or 64 bits."""
        if self.is_binary:
            return int(self._sized({4: "<i", 8: "<q", 0xFC: "<I", 0xF8: "<Q"}))
        return int(self._parsed(int))

    def number(self) -> float:
        """Read a floating-point number; in a binary file, it has 32 or 64 bits."""
        if self.is_binary:
            return float(self._sized({4: "<f", 8: "<d"}))
        return self._parsed(float)

    def flag(self) -> bool:
        """Read a truth value, written as T or F."""
        text = self._bytes(1).decode("latin-1") if self.is_binary else self.token()
        if text not in ("T", "F"):
            raise DamagedFileError(f"a truth value is {text!r}; allowed: T, F")
        return text == "T"

    def integers(self) -> Array:
        """Read a vector of integers as int64."""
        if not self.is_binary:
            numbers = np.asarray([value for row in self._text_rows() for value in row])
            if not np.all(np.abs(numbers) < 2**31):
                raise DamagedFileError("an integer has more than 32 bits")
            return numbers.astype(np.int64)
        (size,) = self._bytes(1)
        (count,) = struct.unpack("<i", self._bytes(4))
        if size not in (4, 8):
            raise DamagedFileError(f"the integers of a vector have {size} bytes; allowed: 4, 8")
        return self._elements(count, np.dtype(f"<i{size}")).astype(np.int64)

    def vector(self) -> Array:
        """Read a vector as float32."""
        if not self.is_binary:
            return np.asarray([value for row in self._text_rows() for value in row], np.float32)
        name = self.token()
        if len(name) != 2 or name[0] not in ELEMENTS or name[1] != "V":
            raise DamagedFileError(f"expected a vector, found {name!r}")
        return self._elements(self.integer(), ELEMENTS[name[0]]).astype(np.float32)

    def matrix(self) -> Array:
        """Read a matrix as float32."""
        if not self.is_binary:
            rows = [row for row in self._text_rows() if row]
            if any(len(row) != len(rows[0]) for row in rows):
                raise DamagedFileError("the rows of a matrix have different lengths")
            return np.asarray(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 0)
        name = self.token()
        if name in COMPRESSED:
            return self._compressed(name)
        if len(name) != 2 or name[0] not in ELEMENTS or name[1] != "M":
            raise DamagedFileError(f"expected a matrix, found {name!r}")
        shape = self.integer(), self.integer()
        count = _product(*shape)
        return self._elements(count, ELEMENTS[name[0]]).astype(np.float32).reshape(shape)

    # ---- inside ----------------------------------------------------------------------------

    def _bytes(self, length: int) -> bytes:
        piece = self.data[self.at : self.at + length]
        if len(piece) != length:
            raise DamagedFileError(f"{length - len(piece)} bytes are missing")
        self.at += length
        return piece

    def _sized(self, layouts: dict[int, str]) -> int | float:
        (size,) = self._bytes(1)
        if size not in layouts:
            raise DamagedFileError(f"the number at byte {self.at} has {size} bytes")
        layout = layouts[size]
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0]

    def _parsed(self, kind: type[int] | type[float]) -> int | float:
        text = self.token()
        try:
            return kind(text)
        except ValueError as error:
            raise DamagedFileError(f"expected a number, found {text!r}") from error

    def _elements(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        if count < 0:
            raise DamagedFileError(f"a vector or matrix has {count} elements")
        return np.frombuffer(self._bytes(count * dtype.itemsize), dtype)

    def _text_rows(self) -> list[list[float]]:
        """Read the numbers between brackets, one list for each line."""
        if self.token() != "[":
            raise DamagedFileError(f"there is no [ before byte {self.at}")
        end = self.data.find(b"]", self.at)
        if end < 0:
            raise DamagedFileError("there is no ] after a [")
        text = self.data[self.at : end]
        self.at = end + 1
        try:
            return [[float(word) for word in row.split()] for row in text.split(b"\n")]
        except ValueError as error:
            raise DamagedFileError(f"expected numbers between brackets: {error}") from error

    def _compressed(self, name: str) -> Array:
        """Decode a compressed matrix to float32.

        The format CM stores elements as bytes that interpolate between four percentiles of a
        column. The format CM2 stores elements as 16-bit steps between the matrix's smallest and
        largest element, and the format CM3 as 8-bit steps.
        """
        least, span, *shape = struct.unpack("<ffii", self._bytes(16))
        rows, columns = shape
        count = _product(rows, columns)
        if name != "CM":
            dtype = np.dtype("<u2" if name == "CM2" else "u1")
            steps = self._elements(count, dtype).astype(np.float32)
            return (least + steps * (span / (65535 if name == "CM2" else 255))).reshape(shape)
        stored = self._elements(4 * columns, np.dtype("<u2")).reshape(columns, 4)
        points = least + stored.astype(np.float32) * np.float32(span * PERCENTILES)
        steps = self._elements(count, np.dtype("u1")).reshape(columns, rows)
        matrix = np.empty((rows, columns), np.float32)
        for column in range(columns):
            matrix[:, column] = np.interp(steps[column], (0, 64, 192, 255), points[column])
        return matrix


def _product(rows: int, columns: int) -> int:
    if rows < 0 or columns < 0:
        raise DamagedFileError(f"a matrix has {rows} rows and {columns} columns")
    return rows * columns
