"""The codecs in NumPy, block by block, as core/codec/wire.h describes them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .values import Floats

Bytes: TypeAlias = NDArray[np.uint8]

BLOCKS = {"fp16": 2048, "bf16": 1, "int8": 128}
SCALE_BYTES = {"fp16": 4, "bf16": 0, "int8": 4}
CODE_BYTES = {"fp16": 2, "bf16": 2, "int8": 1}
LARGEST = float(np.finfo(np.float32).max)
ONE = np.float32(1)
NAN = np.uint32(0x7FC00000).view(np.float32)


def largest_finite(block: Floats) -> np.float32:
    """Return the largest absolute value of the block's finite values; 0 if there are none."""
    return np.max(np.abs(block), initial=np.float32(0), where=np.isfinite(block))


def encode_fp16(block: Floats) -> bytes:
    """Return the bytes of a scale (a power of two) and of the values divided by it, in fp16.

    Finite values decode to finite values.
    """
    largest = largest_finite(block)
    exponent = np.frexp(largest)[1] - 1
    scale = np.ldexp(ONE, max(exponent - 14, -126)) if largest else ONE
    codes = (block / scale).astype(np.float16)
    decoded = codes.astype(np.float64) * scale
    too_large = np.isfinite(block) & (np.abs(decoded) > LARGEST)
    bits = codes.view(np.uint16) - too_large.astype(np.uint16)
    bits[np.isnan(block)] = 0x7E00
    return scale.tobytes() + bits.tobytes()


def encode_bf16(values: Floats) -> bytes:
    """Return the bytes of the values in bfloat16, rounded to nearest with ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    lower, upper = bits & 0xFFFF, bits >> 16
    rounds_up = (lower > 0x8000) | ((lower == 0x8000) & (upper % 2 == 1))
    codes = np.where(np.isnan(values), 0x7FC0, upper + rounds_up)
    return codes.astype(np.uint16).tobytes()


def encode_int8(block: Floats) -> bytes:
    """Return the bytes of a scale and of the values divided by it, rounded to int8.

    If a value of the block is not finite, the scale is NaN, so the whole block decodes to NaN.
    """
    if not np.isfinite(block).all():
        return NAN.tobytes() + bytes(len(block))
    largest = largest_finite(block)
    if largest == 0:
        return bytes(4 + len(block))
    scale = max(largest / np.float32(127), np.float32(2.0**-126))
    if float(scale) * 127 > LARGEST:
        scale = np.nextafter(scale, np.float32(0))
    inverse = min(np.float32(127) / largest, np.float32(2.0**126))
    return np.float32(scale).tobytes() + np.rint(block * inverse).astype(np.int8).tobytes()


ENCODERS = {"fp16": encode_fp16, "bf16": encode_bf16, "int8": encode_int8}


def blocks_of(codec: str, count: int) -> Iterator[slice]:
    """Yield the ranges of elements that share a scale; a codec without scales has one range."""
    size = BLOCKS[codec] if SCALE_BYTES[codec] else max(count, 1)
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


def encode(codec: str, values: Floats) -> Bytes:
    """Return the bytes to which a codec encodes values."""
    with np.errstate(all="ignore"):
        blocks = [ENCODERS[codec](values[block]) for block in blocks_of(codec, len(values))]
    return np.frombuffer(b"".join(blocks), np.uint8)


def decode_codes(codec: str, data: bytes) -> Floats:
    """Return encoded numbers of one block as float32, not yet multiplied by the block's scale."""
    if codec == "fp16":
        return np.frombuffer(data, np.float16).astype(np.float32)
    if codec == "bf16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, np.int8).astype(np.float32)


def decode(codec: str, data: Bytes, count: int) -> Floats:
    """Decode bytes; return `count` values."""
    values = np.empty(count, np.float32)
    raw, at = data.tobytes(), 0
    for block in blocks_of(codec, count):
        scale = np.frombuffer(raw, np.float32, 1, at)[0] if SCALE_BYTES[codec] else ONE
        at += SCALE_BYTES[codec]
        end = at + (block.stop - block.start) * CODE_BYTES[codec]
        with np.errstate(all="ignore"):
            values[block] = decode_codes(codec, raw[at:end]) * scale
        at = end
    values[np.isnan(values)] = NAN
    return values


def encode_with_residual(codec: str, values: Floats, residual: Floats) -> tuple[Bytes, Floats]:
    """Encode the sums of values and residual; return the bytes and the new residual."""
    with np.errstate(all="ignore"):
        total = values + residual
        data = encode(codec, total)
        decoded = decode(codec, data, len(values))
        return data, np.where(np.isfinite(decoded), total - decoded, residual)
