"""Reader of the weights in a .caffemodel file.

The file is a NetParameter of caffe.proto in protobuf's wire format. Only names and blobs are read,
because the .prototxt file describes the layers. The field numbers are defined in
https://github.com/BVLC/caffe/blob/master/src/caffe/proto/caffe.proto. The encoding is defined in
https://protobuf.dev/programming-guides/encoding/.
"""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.damage import DamagedFileError, parse_file

# Numbers of the fields `layer` and `layers` (older), each with the numbers of the fields in it that
# contain the name and the blobs.
NET_LAYERS = {100: (1, 7), 2: (4, 6)}
SHAPE, DATA, DOUBLE_DATA, DIM = 7, 5, 8, 1
LEGACY_SHAPE = (1, 2, 3, 4)  # num, channels, height, width
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES = 10  # largest length of a 64-bit number in protobuf
MOST_DIMENSIONS = 32  # the limit of NumPy 1

Blobs = dict[str, list[Array]]
Field = tuple[int, int, int, memoryview]  # number, wire type, varint, bytes


def read_blobs(path: Path) -> Blobs:
    """Return the weights of each layer as float32, by the layer's name.

    Raises:
        UsageError: If the file cannot be read or is damaged.
    """
    blobs = parse_file(path, "caffemodel", lambda data: _net_blobs(memoryview(data)))
    if not blobs:
        raise UsageError(f"{path}: this caffemodel has no layers with weights")
    return blobs


def _net_blobs(data: memoryview) -> Blobs:
    blobs_by_name: Blobs = {}
    for number, kind, _, content in _fields(data):
        if kind == BYTES and number in NET_LAYERS:
            name, blobs = _layer(content, *NET_LAYERS[number])
            if blobs:
                blobs_by_name[name] = blobs
    return blobs_by_name


def _layer(data: memoryview, name_field: int, blobs_field: int) -> tuple[str, list[Array]]:
    name = ""
    blobs: list[Array] = []
    for number, kind, _, content in _fields(data):
        if kind == BYTES and number == name_field:
            name = bytes(content).decode(errors="replace")
        elif kind == BYTES and number == blobs_field:
            blobs.append(_blob(content))
    return name, blobs


def _blob(data: memoryview) -> Array:
    legacy: dict[int, int] = {}
    shape: list[int] | None = None
    parts: list[Array] = []
    for number, kind, varint, content in _fields(data):
        if number in LEGACY_SHAPE and kind == VARINT:
            legacy[number] = varint
        elif number == SHAPE and kind == BYTES:
            shape = _dimensions(content)
        elif number in (DATA, DOUBLE_DATA) and kind != VARINT:
            parts.append(_numbers(content, np.dtype("<f4" if number == DATA else "<f8")))
    if shape is None and legacy:
        shape = [legacy.get(number, 1) for number in LEGACY_SHAPE]
    elements = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    if shape is None:
        shape = [elements.size]
    if len(shape) > MOST_DIMENSIONS or math.prod(shape) != elements.size:
        raise DamagedFileError(f"a blob of the shape {shape[:8]} has {elements.size} elements")
    return elements.astype(np.float32, copy=False).reshape(shape)


def _dimensions(data: memoryview) -> list[int]:
    dimensions: list[int] = []
    for number, kind, varint, content in _fields(data):
        if number == DIM and kind == VARINT:
            dimensions.append(varint)
        elif number == DIM and kind == BYTES:
            at = 0
            while at < len(content):
                value, at = _varint(content, at)
                dimensions.append(value)
    return dimensions


def _numbers(data: memoryview, dtype: np.dtype[np.floating]) -> Array:
    if len(data) % dtype.itemsize:
        raise DamagedFileError(f"{len(data)} bytes are no whole number of {dtype.name} elements")
    return np.frombuffer(data, dtype)


def _fields(data: memoryview) -> Iterator[Field]:
    """Yield the fields of a message, in the order in which the file has them."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        varint, length = 0, 0
        if kind == VARINT:
            varint, at = _varint(data, at)
        elif kind == BYTES:
            length, at = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise DamagedFileError(f"a field has the wire type {kind}")
        if at + length > len(data):
            raise DamagedFileError(f"{at + length - len(data)} bytes are missing")
        yield key >> 3, kind, varint, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + VARINT_BYTES]):
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise DamagedFileError(f"a number {len(data) - at} bytes before the end has no last byte")
