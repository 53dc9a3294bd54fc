"""What gradients become on their way."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Turns a tensor into what is sent, and back.

    A subclass of yours may do anything that keeps sums meaningful. Ours leave float32 as it is, and
    name a codec of the engine, which encodes it between hosts only and sums in float32.
    """

    codec = "none"

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return what is sent, and whatever decompress() needs."""
        raise NotImplementedError

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return what the receiver makes of it."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor."""
        return tensor, None

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor."""
        return tensor


class FP16Compressor(Compressor):
    """Sends float16: gradients in float32 through the engine's codec, with a scale of their own."""

    codec = "fp16"
    dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return floating-point numbers as the type that is sent, and their own."""
        is_float = tensor.dtype.is_floating_point
        return (tensor.to(cls.dtype) if is_float else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the type there was before."""
        return tensor.to(ctx)


class BF16Compressor(FP16Compressor):
    """Sends bfloat16, which has the range of float32."""

    codec = "bf16"
    dtype = torch.bfloat16


class Int8Compressor(NoneCompressor):
    """Sends float32 as int8 with a scale for each 128; what is lost is added the next time."""

    codec = "int8"


class Compression:
    """The compressions there are; int8 and bf16 are ours."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor


def codec_for(compression: type[Compressor], tensor: torch.Tensor) -> str | None:
    """Return the engine's codec that does a tensor's compression; None to compress it here."""
    codec = vars(compression).get("codec", "none")  # not of a subclass, which may do otherwise
    return codec if codec != "none" and tensor.dtype == torch.float32 else None
