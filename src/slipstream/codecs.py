"""The codecs that encode float32 tensors between hosts, and the sizes of encoded tensors."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream import _core as core

EXACT = "none"
CODECS: Mapping[str, core.CodecTraits] = {traits.name: traits for traits in core.codecs()}
LOSSY = tuple(name for name in CODECS if name != EXACT)

_FLOAT_BYTES = 4


def wire_bytes(codec: str) -> float:
    """Return the mean number of bytes per element of a long encoded tensor.

    Args:
        codec: Name of a codec in `CODECS`.
    """
    traits = CODECS[codec]
    return traits.element_bytes + traits.header_bytes / traits.block


def wire_share(codec: str) -> float:
    """Return the ratio of the encoded size of a long tensor to its size in float32.

    Args:
        codec: Name of a codec in `CODECS`.
    """
    return wire_bytes(codec) / _FLOAT_BYTES
