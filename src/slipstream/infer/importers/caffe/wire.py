"""The weights of a .caffemodel file.

It is a NetParameter of caffe.proto in protobuf's wire format. Only names and blobs are read: what
the layers do is in the .prototxt file. Field numbers are those of
https://github.com/BVLC/caffe/blob/master/src/caffe/proto/caffe.proto, the encoding that of
https://protobuf.dev/programming-guides/encoding/.
"""

# NumPy's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array

NET_LAYERS = {100: (1, 7), 2: (4, 6)}  # layer and layers: the fields of their name and blobs
SHAPE, DATA, DOUBLE_DATA, DIM = 7, 5, 8, 1
LEGACY_SHAPE = (1, 2, 3, 4)  # num, channels, height, width
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES = 10
MOST_DIMENSIONS = 32

Blobs = dict[str, list[Array]]
Field = tuple[int, int, int, memoryview]  # number, wire type, varint, bytes


def read_blobs(path: Path) -> Blobs:
    """Weights by the name of their layer, float32.

    Raises UsageError where the file cannot be read or is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        found = _net_blobs(memoryview(data))
    except _DamagedError as error:
        raise UsageError(f"{path}: this is no caffemodel, or a damaged one: {error}") from error
    if not found:
        raise UsageError(f"{path}: this caffemodel has no layers with weights")
    return found


class _DamagedError(ValueError):
    """The bytes are not what they should be."""


def _net_blobs(data: memoryview) -> Blobs:
    found: Blobs = {}
    for number, kind, _, content in _fields(data):
        if kind == BYTES and number in NET_LAYERS:
            name, blobs = _layer(content, *NET_LAYERS[number])
            if blobs:
                found[name] = blobs
    return found


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
        raise _DamagedError(f"a blob of the shape {shape[:8]} has {elements.size} elements")
    return elements.astype(np.float32, copy=False).reshape(shape)


def _dimensions(data: memoryview) -> list[int]:
    found: list[int] = []
    for number, kind, varint, content in _fields(data):
        if number == DIM and kind == VARINT:
            found.append(varint)
        elif number == DIM and kind == BYTES:
            at = 0
            while at < len(content):
                value, at = _varint(content, at)
                found.append(value)
    return found


def _numbers(data: memoryview, dtype: np.dtype[np.floating]) -> Array:
    if len(data) % dtype.itemsize:
        raise _DamagedError(f"{len(data)} bytes hold no whole number of {dtype.name}")
    return np.frombuffer(data, dtype)


def _fields(data: memoryview) -> Iterator[Field]:
    """Yield the fields of a message in their order."""
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
            raise _DamagedError(f"a field has the wire type {kind}")
        if at + length > len(data):
            raise _DamagedError(f"{at + length - len(data)} bytes are missing")
        yield key >> 3, kind, varint, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + VARINT_BYTES]):
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise _DamagedError(f"a number is not ended, {len(data) - at} bytes before the end")
