"""Codecs that encode float32 between hosts, with the sizes that the engine reports."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream import _core as core

EXACT = "none"
CODECS: Mapping[str, core.CodecTraits] = {traits.name: traits for traits in core.codecs()}
LOSSY = tuple(name for name in CODECS if name != EXACT)

_FLOAT_BYTES = 4


def wire_bytes(codec: str) -> float:
    """Return the bytes of an encoded element: the size of a long tensor over its length.

    Args:
        codec: Name of a codec in `CODECS`.
    """
    traits = CODECS[codec]
    return traits.element_bytes + traits.header_bytes / traits.block


def wire_share(codec: str) -> float:
    """Return the encoded bytes of a long tensor over its bytes in float32.

    Args:
        codec: Name of a codec in `CODECS`.
    """
    return wire_bytes(codec) / _FLOAT_BYTES
