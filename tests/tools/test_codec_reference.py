"""The codecs in NumPy, which kernels for GPUs are compared with, have the engine's bits."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest
from gpu_check.codecs import reference
from gpu_check.codecs.values import KINDS, values_of

DIGESTS = Path(__file__).parents[2] / "core" / "test" / "wire_digests.inc"
ROW = re.compile(r'^\{"(.*)", "(.*)", (0x[0-9A-F]{8})\},$', re.MULTILINE)
COUNTS = (1, 127, 128, 129, 2047, 2048, 2049, 5000)


def rows() -> list[tuple[str, str, int]]:
    """Return the codecs, kinds and digests that the engine's test has."""
    found = ROW.findall(DIGESTS.read_text())
    return [(codec, kind, int(digest, 16)) for codec, kind, digest in found]


def digest_of(codec: str, kind: str) -> int:
    """Return the digest of values encoded, decoded, and encoded with a residual, and of it."""
    digest = 0
    for count in COUNTS:
        values, before = values_of(kind, count), values_of(kind, count, seed=1)
        encoded = reference.encode(codec, values)
        encoded_sum, residual = reference.encode_with_residual(codec, values, before)
        decoded = reference.decode(codec, encoded, count)
        for array in (encoded, decoded, encoded_sum, residual):
            digest = zlib.crc32(array.tobytes(), digest)
    return digest


def test_every_codec_and_kind_has_a_digest() -> None:
    pairs = [(codec, kind) for codec, kind, _ in rows()]
    assert pairs == [(codec, kind) for codec in reference.BLOCKS for kind in KINDS]


@pytest.mark.parametrize(("codec", "kind", "digest"), rows())
def test_the_bits_are_the_engines(codec: str, kind: str, digest: int) -> None:
    assert digest_of(codec, kind) == digest
