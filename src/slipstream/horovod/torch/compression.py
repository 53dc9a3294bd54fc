"""Compression of tensors on the network."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Base class of compressions, which convert a tensor before an operation and back after it.

    A user's subclass may do any conversion whose results can be summed. In an optimizer, the
    subclasses in this file let the engine compress float32 gradients: `codec` names the
    engine's codec. The engine encodes gradients between hosts only, and sums them in float32.
    """

    codec = "none"

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and the context that decompress() needs."""
        raise NotImplementedError

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the result of the operation, converted back to the original tensor's type."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Compression that sends tensors unchanged."""

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor."""
        return tensor, None

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor."""
        return tensor


class FP16Compressor(Compressor):
    """Compression to float16.

    In an optimizer, the engine encodes float32 gradients to float16. The engine's codec scales
    every 2048 values, so no finite value becomes infinite.
    """

    codec = "fp16"
    dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor, converted if its elements are floats, and its original dtype."""
        is_float = tensor.dtype.is_floating_point
        return (tensor.to(cls.dtype) if is_float else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the result of the operation in the original element type."""
        return tensor.to(ctx)


class BF16Compressor(FP16Compressor):
    """Compression to bfloat16, which has the range of float32."""

    codec = "bf16"
    dtype = torch.bfloat16


class Int8Compressor(NoneCompressor):
    """Compression of an optimizer's float32 gradients to int8, with error feedback.

    The engine's codec scales every 128 values. Outside an optimizer, this compression has no
    effect.
    """

    codec = "int8"


class Compression:
    """Available compressions; Horovod itself has only `none` and `fp16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor


def codec_for(compression: type[Compressor], tensor: torch.Tensor) -> str | None:
    """Return the engine's codec for a tensor; None if the compression class must convert it."""
    # vars() skips an inherited codec, because a subclass may compress in another way.
    codec = vars(compression).get("codec", "none")
    return codec if codec != "none" and tensor.dtype == torch.float32 else None
