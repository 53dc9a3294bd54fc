"""Compression of tensors on the network."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Base class of compressions; it converts a tensor before an operation, and back after it.

    A user's subclass may do any conversion after which sums still have a meaning. In an optimizer,
    the classes below let the engine compress float32 gradients: `codec` names a codec of the
    engine, which encodes between hosts only and sums in float32.
    """

    codec = "none"

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and a context for decompress()."""
        raise NotImplementedError

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the result in the form of the original tensor."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Compression that sends tensors as they are."""

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor."""
        return tensor, None

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor."""
        return tensor


class FP16Compressor(Compressor):
    """Compression to float16; the engine's codec for float32 gradients also scales each tensor."""

    codec = "fp16"
    dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor, converted unless its type is integral, and its original type."""
        is_float = tensor.dtype.is_floating_point
        return (tensor.to(cls.dtype) if is_float else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the result in the original type."""
        return tensor.to(ctx)


class BF16Compressor(FP16Compressor):
    """Compression to bfloat16, which has the range of float32."""

    codec = "bf16"
    dtype = torch.bfloat16


class Int8Compressor(NoneCompressor):
    """Compression of float32 to int8, with a scale for each 128 values and error feedback."""

    codec = "int8"


class Compression:
    """Available compressions; Horovod itself has only `none` and `fp16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor


def codec_for(compression: type[Compressor], tensor: torch.Tensor) -> str | None:
    """Return the codec by which the engine compresses a tensor; None if the class must do it."""
    # vars() skips an inherited codec, because a subclass may compress in another way.
    codec = vars(compression).get("codec", "none")
    return codec if codec != "none" and tensor.dtype == torch.float32 else None
