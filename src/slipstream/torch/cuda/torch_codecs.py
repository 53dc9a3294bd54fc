"""The codecs in plain PyTorch, for GPUs without Triton and for CPU tensors.

The bits are the same as the engine's. Divisors are tensors, because on a GPU PyTorch replaces the
division by a Python number by a multiplication with its inverse. NaN is written as bits, because a
GPU computes other bits for NaN than the engine.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from slipstream.torch.cuda.layouts import CodecLayout

# Bits of float32 numbers.
_INFINITY = 0x7F800000
_NAN = 0x7FC00000
_MAGNITUDE = 0x7FFFFFFF
_LAST_BINADE = 254 << 23  # 2^127: the next power of two is not a finite float

_SMALLEST_SCALE = 2.0**-126
_LARGEST_INVERSE = 2.0**126
_LARGEST_INT8_SCALE = float.fromhex("0x1.020406p+121")  # a larger scale times 127 overflows


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.view(torch.int32)


def _magnitudes(values: torch.Tensor) -> torch.Tensor:
    return _bits(values) & _MAGNITUDE


def _with_the_nan(values: torch.Tensor) -> torch.Tensor:
    bits = _bits(values)
    return torch.where(bits & _MAGNITUDE > _INFINITY, _NAN, bits).view(torch.float32)


def _fp16_codes(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    magnitudes = _magnitudes(values)
    is_finite = magnitudes < _INFINITY
    largest = torch.where(is_finite, magnitudes, 0).amax(1, keepdim=True)
    exponents = torch.where(largest == 0, 127, (largest >> 23).clamp(min=15) - 14)
    scaled = values * ((254 - exponents) << 23).view(torch.float32)
    # The largest scaled float16 that decodes to a finite value.
    limits = torch.where(largest < _LAST_BINADE, 32768.0, 32752.0)
    finite = torch.clamp(scaled, -limits, limits).half().view(torch.int16)
    infinities = ((_bits(values) >> 16) & 0x8000) | 0x7C00
    special = torch.where(magnitudes > _INFINITY, 0x7E00, infinities).to(torch.int16)
    return torch.where(is_finite, finite, special), (exponents << 23).view(torch.float32)


def _fp16_values(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return _with_the_nan(codes.view(torch.float16).float() * scales)


def _bf16_codes(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    bits = _bits(_with_the_nan(values))
    codes = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return codes.to(torch.int16), values[:, :0]


def _bf16_values(codes: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return (codes.int() << 16).view(torch.float32)


def _int8_codes(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    largest_bits = _magnitudes(values).amax(1, keepdim=True)
    is_finite = largest_bits < _INFINITY
    has_scale = is_finite & (largest_bits > 0)
    largest = torch.where(has_scale, largest_bits.view(torch.float32), 1.0)
    most = torch.full_like(largest, 127.0)
    scales = (largest / most).clamp(_SMALLEST_SCALE, _LARGEST_INT8_SCALE)
    inverses = (most / largest).clamp(max=_LARGEST_INVERSE)
    codes = torch.where(has_scale, values * inverses, 0.0).round().to(torch.int8)
    scale_bits = torch.where(has_scale, _bits(scales), torch.where(is_finite, 0, _NAN))
    return codes, scale_bits.int().view(torch.float32)


def _int8_values(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return _with_the_nan(codes.float() * scales)


def _read(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return rows of bytes as numbers of a dtype, in new memory."""
    shape = (len(rows), rows.shape[1] // dtype.itemsize)
    numbers = torch.empty(shape, dtype=dtype, device=rows.device)
    numbers.view(torch.uint8).copy_(rows)
    return numbers


_Codes = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
_Values = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_CODERS: dict[str, tuple[_Codes, _Values, torch.dtype]] = {
    "fp16": (_fp16_codes, _fp16_values, torch.int16),
    "bf16": (_bf16_codes, _bf16_values, torch.int16),
    "int8": (_int8_codes, _int8_values, torch.int8),
}


def _rows(
    layout: CodecLayout, values: torch.Tensor, data: torch.Tensor
) -> Iterator[list[torch.Tensor]]:
    """Yield views of values and of their bytes in which each row is a block.

    The first pair of views contains all full blocks; the second pair contains the last block, if it
    is shorter. If the codec has no scales, all values form one row.
    """
    count = values.numel()
    width = layout.block if layout.header_bytes else max(count, 1)
    whole = count // width
    cut, cut_bytes = whole * width, layout.encoded_bytes(whole * width)
    if whole:
        yield [values[:cut].view(whole, width), data[:cut_bytes].view(whole, -1)]
    if cut < count:
        yield [values[cut:].view(1, -1), data[cut_bytes:].view(1, -1)]


@torch.no_grad()
def encode(
    layout: CodecLayout,
    tensor: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor | None = None,
) -> None:
    """Encode a tensor; on a GPU, enqueue the encoding on the current stream.

    Args:
        layout: Layout of the codec.
        tensor: Float32 values.
        out: Uint8 tensor for the result, on the tensor's device or in pinned host memory.
        residual: Rounding errors of earlier calls; they are added to the values, and replaced by
            the errors of this call. None (the default) for no error feedback.
    """
    codes_of, values_of, _ = _CODERS[layout.name]
    values = tensor.view(-1) if residual is None else tensor.view(-1) + residual.view(-1)
    data = torch.empty_like(out, device=tensor.device) if out.device != tensor.device else out
    decoded = torch.empty_like(values) if residual is not None else values
    for (block, row), (arrived, _) in zip(
        _rows(layout, values, data), _rows(layout, decoded, data), strict=True
    ):
        codes, scales = codes_of(block)
        row[:, : layout.header_bytes] = scales.view(torch.uint8)
        row[:, layout.header_bytes :] = codes.view(torch.uint8)
        if residual is not None:
            arrived.copy_(values_of(codes, scales))
    if residual is not None:
        is_finite = _magnitudes(decoded) < _INFINITY
        residual.copy_(
            torch.where(is_finite, values - decoded, residual.view(-1)).view_as(residual)
        )
    if data is not out:
        out.copy_(data, non_blocking=True)


@torch.no_grad()
def decode(layout: CodecLayout, data: torch.Tensor, out: torch.Tensor) -> None:
    """Decode bytes; on a GPU, enqueue the decoding on the current stream.

    Args:
        layout: Layout of the codec.
        data: Bytes that `encode` or the engine wrote, on the device of `out` or in pinned host
            memory.
        out: Float32 tensor for the values.
    """
    _, values_of, dtype = _CODERS[layout.name]
    for values, row in _rows(layout, out.view(-1), data.to(out.device, non_blocking=True)):
        scales = _read(row[:, : layout.header_bytes], torch.float32)
        values.copy_(values_of(_read(row[:, layout.header_bytes :], dtype), scales))
