"""Kaldi's basic types, in text or binary: tokens, numbers, vectors, matrices, compressed ones too.

The forms are those of https://github.com/kaldi-asr/kaldi/blob/master/src/base/io-funcs.h and of
src/matrix (kaldi-matrix.cc, kaldi-vector.cc, compressed-matrix.cc) there.
"""

# NumPy's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import struct

import numpy as np

from slipstream.infer.graph.graph import Array

SPACE = b" \t\r\n"
ELEMENTS = {"F": np.dtype("<f4"), "D": np.dtype("<f8")}
COMPRESSED = ("CM", "CM2", "CM3")
PERCENTILES = 1 / 65535  # of the range, for one step of 16 bits
LONGEST_TOKEN = 200


class DamagedError(ValueError):
    """The bytes are not what they should be."""


class KaldiStream:
    """Reads one thing after the other from bytes; DamagedError for what does not belong there."""

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
            raise DamagedError(f"a word is missing at byte {self.at}")
        self.at += len(word)
        if self.is_binary:
            self.at += 1  # one space belongs to it; numbers may begin with bytes that look like one
        return word.decode("ascii", errors="replace")

    def line(self) -> str:
        """Read the rest of this line."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise DamagedError("it ends inside the configuration")
        text = self.data[self.at : end].decode("utf-8", errors="replace")
        self.at = end + 1
        return text.strip()

    def skip_past(self, mark: str) -> None:
        """Go on behind the next `mark`."""
        found = self.data.find(mark.encode(), self.at)
        if found < 0:
            raise DamagedError(f"there is no {mark}")
        self.at = found + len(mark) + self.is_binary

    def integer(self) -> int:
        """Read an integer of 32 or 64 bits."""
        if self.is_binary:
            return int(self._sized({4: "<i", 8: "<q", 0xFC: "<I", 0xF8: "<Q"}))
        return int(self._parsed(int))

    def number(self) -> float:
        """Read a number of 32 or 64 bits."""
        if self.is_binary:
            return float(self._sized({4: "<f", 8: "<d"}))
        return self._parsed(float)

    def flag(self) -> bool:
        """T or F."""
        text = self._bytes(1).decode("latin-1") if self.is_binary else self.token()
        if text not in ("T", "F"):
            raise DamagedError(f"{text!r} is neither T nor F")
        return text == "T"

    def integers(self) -> Array:
        """Read a vector of integers as int64."""
        if not self.is_binary:
            found = np.asarray([value for row in self._text_rows() for value in row])
            if not np.all(np.abs(found) < 2**31):
                raise DamagedError("whole numbers of more than 32 bits")
            return found.astype(np.int64)
        (size,) = self._bytes(1)
        (count,) = struct.unpack("<i", self._bytes(4))
        if size not in (4, 8):
            raise DamagedError(f"whole numbers of {size} bytes")
        return self._elements(count, np.dtype(f"<i{size}")).astype(np.int64)

    def vector(self) -> Array:
        """Read a vector as float32."""
        if not self.is_binary:
            return np.asarray([value for row in self._text_rows() for value in row], np.float32)
        name = self.token()
        if len(name) != 2 or name[0] not in ELEMENTS or name[1] != "V":
            raise DamagedError(f"{name!r} stands where a vector belongs")
        return self._elements(self.integer(), ELEMENTS[name[0]]).astype(np.float32)

    def matrix(self) -> Array:
        """Read a matrix as float32."""
        if not self.is_binary:
            rows = [row for row in self._text_rows() if row]
            if any(len(row) != len(rows[0]) for row in rows):
                raise DamagedError("rows of a matrix have different lengths")
            return np.asarray(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 0)
        name = self.token()
        if name in COMPRESSED:
            return self._compressed(name)
        if len(name) != 2 or name[0] not in ELEMENTS or name[1] != "M":
            raise DamagedError(f"{name!r} stands where a matrix belongs")
        shape = self.integer(), self.integer()
        count = _product(*shape)
        return self._elements(count, ELEMENTS[name[0]]).astype(np.float32).reshape(shape)

    # ---- inside ----------------------------------------------------------------------------

    def _bytes(self, length: int) -> bytes:
        piece = self.data[self.at : self.at + length]
        if len(piece) != length:
            raise DamagedError(f"{length - len(piece)} bytes are missing")
        self.at += length
        return piece

    def _sized(self, layouts: dict[int, str]) -> int | float:
        (size,) = self._bytes(1)
        if size not in layouts:
            raise DamagedError(f"a number of {size} bytes at byte {self.at}")
        layout = layouts[size]
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0]

    def _parsed(self, kind: type[int] | type[float]) -> int | float:
        text = self.token()
        try:
            return kind(text)
        except ValueError as error:
            raise DamagedError(f"{text!r} is no number") from error

    def _elements(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        if count < 0:
            raise DamagedError(f"{count} elements")
        return np.frombuffer(self._bytes(count * dtype.itemsize), dtype)

    def _text_rows(self) -> list[list[float]]:
        """Numbers between brackets, a list for each line."""
        if self.token() != "[":
            raise DamagedError(f"a [ is missing before byte {self.at}")
        end = self.data.find(b"]", self.at)
        if end < 0:
            raise DamagedError("a ] is missing")
        text = self.data[self.at : end]
        self.at = end + 1
        try:
            return [[float(word) for word in row.split()] for row in text.split(b"\n")]
        except ValueError as error:
            raise DamagedError(f"no numbers between brackets: {error}") from error

    def _compressed(self, name: str) -> Array:
        """Bytes between percentiles of each column, or 16 or 8 bits between two ends."""
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
        found = np.empty((rows, columns), np.float32)
        for column in range(columns):
            found[:, column] = np.interp(steps[column], (0, 64, 192, 255), points[column])
        return found


def _product(rows: int, columns: int) -> int:
    if rows < 0 or columns < 0:
        raise DamagedError(f"a matrix of {rows} rows and {columns} columns")
    return rows * columns
