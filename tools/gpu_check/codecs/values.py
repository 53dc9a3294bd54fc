"""Values that test a codec, computed from integers only, so that C++ computes the same values.

core/test/wire_digests_test.cc has the same functions in C++. Tests in Python and in C++ compare
digests of the encoded and decoded values (core/test/wire_digests.inc).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.uint32]

SPECIAL = np.array(
    [
        *[0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x00000000, 0x80000000],
        *[0x7F7FFFFF, 0xFF7FFFFF, 0x00800000, 0x00000001, 0x80000001, 0x3F800000],
    ],
    np.uint32,
)
SIGN = np.uint32(0x80000000)


def hashed(count: int, seed: int) -> Words:
    """Return `count` pseudo-random 32-bit integers."""
    words = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
    words += np.uint32(seed * 0x85EBCA6B & 0xFFFFFFFF)
    words ^= words >> np.uint32(16)
    words *= np.uint32(0x85EBCA6B)
    words ^= words >> np.uint32(13)
    words *= np.uint32(0xC2B2AE35)
    return words ^ words >> np.uint32(16)


def with_exponents(words: Words, first: int, count: int) -> Words:
    """Return the bits of floats whose exponents are in a range of `count` exponents from `first`.

    The signs and fractions are those of `words`.
    """
    exponents = (words >> 23 & 0xFF) % count + first
    return words & np.uint32(0x807FFFFF) | exponents.astype(np.uint32) << np.uint32(23)


def gradients(words: Words) -> Words:
    """Return the bits of floats of similar magnitude."""
    return with_exponents(words, 100, 21)


def wide(words: Words) -> Words:
    """Return the bits of floats that span 32 exponents.

    Half of the floats have few significant bits, so that rounding to fp16 meets ties.
    """
    few_bits = words & 0xFFF00000
    return with_exponents(np.where(words & 1, words, few_bits).astype(np.uint32), 96, 32)


def halves(words: Words) -> Words:
    """Return the bits of floats halfway between two neighbours in fp16, or in bf16."""
    of_fp16 = words & 0xFFFFE000 | 0x1000
    of_bf16 = words & 0xFFFF0000 | 0x8000
    return with_exponents(np.where(words & 1, of_fp16, of_bf16).astype(np.uint32), 110, 16)


def int8_halves(words: Words) -> Words:
    """Return the bits of floats that are multiples of 0.5, so that rounding to int8 meets ties.

    Each block has the value 127, so the int8 codec chooses the scale 1.
    """
    numbers = ((words % 255).astype(np.float32) - np.float32(127)) / np.float32(2)
    numbers[::128] = 127
    return numbers.view(np.uint32)


def special(words: Words) -> Words:
    """Return gradients, of which one in 64 is an infinity, a NaN or another special number."""
    places = (words >> 6) % len(SPECIAL)
    return np.where(words % 64 == 0, SPECIAL[places], gradients(words)).astype(np.uint32)


def ends(words: Words) -> Words:
    """Return the bits of floats close to the largest finite float, positive and negative."""
    return (words & SIGN) | (np.uint32(0x7F7FFFFF) - words % 0x20000)


KINDS: dict[str, Callable[[Words], Words]] = {
    "bits": lambda words: words,
    "gradients": gradients,
    "wide": wide,
    "tiny": lambda words: with_exponents(words, 0, 40),
    "huge": lambda words: with_exponents(words, 252, 3),
    "halves": halves,
    "int8 halves": int8_halves,
    "special": special,
    "zeros": lambda words: words & SIGN,
    "ends": ends,
}


def values_of(kind: str, count: int, seed: int = 0) -> Floats:
    """Return `count` test values of a kind in `KINDS`."""
    return KINDS[kind](hashed(count, seed)).view(np.float32)
