"""Layouts of the codecs, for kernels that need them before the engine is loaded.

The engine has the same table in core/include/slipstream/codec.h; a test compares the two. A codec
that is missing here has no kernels for tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CodecLayout:
    """The layout of a codec's bytes on the wire: blocks, each with a scale and its elements.

    Args:
        name: Name of the codec.
        block: Number of elements that share a scale.
        header_bytes: Bytes in front of each block, for its scale.
        element_bytes: Bytes of each element.
    """

    name: str
    block: int
    header_bytes: int
    element_bytes: int

    @property
    def block_bytes(self) -> int:
        """Size of a full block in bytes."""
        return self.header_bytes + self.block * self.element_bytes

    def encoded_bytes(self, count: int) -> int:
        """Return the size in bytes of `count` encoded elements; the last block may be short."""
        num_blocks = -(-count // self.block)
        return num_blocks * self.header_bytes + count * self.element_bytes


LAYOUTS: Mapping[str, CodecLayout] = {
    layout.name: layout
    for layout in (
        CodecLayout("fp16", block=2048, header_bytes=4, element_bytes=2),
        CodecLayout("bf16", block=1, header_bytes=0, element_bytes=2),
        CodecLayout("int8", block=128, header_bytes=4, element_bytes=1),
    )
}
