"""The codecs as Triton kernels: one kernel reads, adds the residual, encodes and stores.

core/codec/wire_formats-inl.h defines the codecs. The bits are the same as on a CPU, because no
operation is fused (`enable_fp_fusion=False`), divisions are rounded to nearest, and denormals are
kept. Every NaN is replaced by the NaN of the engine, because GPUs write other bits for it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportMissingTypeStubs=false
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from slipstream.torch.cuda.layouts import CodecLayout

TILE = 2048  # elements that a program handles at a time
# 8 warps are 256 threads. Without fusion, a product and the sum after it are rounded separately.
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}
# Number of programs (Triton's thread blocks) that access host memory at the same time: the smallest
# that fills PCIe 5.0 x16 on an H200 (benchmarks/gpu/h200_codecs.json). More programs slow down the
# user's kernels. Beside 32 encoding programs a matrix product takes twice as long; beside 8 it
# takes as long as beside a copy engine.
_HOST_ENCODERS = 8
_HOST_DECODERS = 32
_ALIGNMENT = 16  # bytes; with a lower alignment, kernels load and store narrower words

# Bits of float32 numbers.
_INFINITY = tl.constexpr(0x7F800000)
_NAN = tl.constexpr(0x7FC00000)
_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_LAST_BINADE = tl.constexpr(254 << 23)  # 2^127: the next power of two is not a finite float

_SMALLEST_SCALE = tl.constexpr(2.0**-126)
_LARGEST_INVERSE = tl.constexpr(2.0**126)
_LARGEST_INT8_SCALE = tl.constexpr(float.fromhex("0x1.020406p+121"))  # larger ones x 127 overflow
# 1.5 * 2^23: adding it to a number of up to 22 bits rounds the number to an integer, which is then
# in the lowest bits of the sum.
_SHIFT = tl.constexpr(12582912.0)
_SHIFT_BITS = tl.constexpr(0x4B400000)


@triton.jit
def _bits(value):
    return value.to(tl.int32, bitcast=True)


@triton.jit
def _float(bits):
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _magnitude(value):
    return _bits(value) & _MAGNITUDE


@triton.jit
def _with_the_nan(value):
    return _float(tl.where(_magnitude(value) > _INFINITY, _NAN, _bits(value)))


@triton.jit
def _fp16_codes(value):
    """Return each value divided by its row's scale, as float16 bits, and the scales of the rows."""
    magnitude = _magnitude(value)
    is_finite = magnitude < _INFINITY
    largest = tl.max(tl.where(is_finite, magnitude, 0), axis=1, keep_dims=True)
    exponent = tl.where(largest == 0, 127, tl.maximum(largest >> 23, 15) - 14)
    scaled = value * _float((254 - exponent) << 23)
    # The largest scaled float16 that decodes to a finite value.
    limit = tl.where(largest < _LAST_BINADE, 32768.0, 32752.0)
    bounded = tl.minimum(tl.maximum(scaled, -limit), limit)
    finite = bounded.to(tl.float16).to(tl.int16, bitcast=True)
    infinity = ((_bits(value) >> 16) & 0x8000) | 0x7C00
    special = tl.where(magnitude > _INFINITY, 0x7E00, infinity).to(tl.int16)
    return tl.where(is_finite, finite, special), _float(exponent << 23)


@triton.jit
def _fp16_values(codes, scale):
    return _with_the_nan(codes.to(tl.float16, bitcast=True).to(tl.float32) * scale)


@triton.jit
def _bf16_codes(value):
    bits = _bits(_with_the_nan(value))
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int16)


@triton.jit
def _bf16_values(codes):
    return _float(codes.to(tl.int32) << 16)


@triton.jit
def _int8_codes(value):
    """Return each value as an int8 multiple of its row's scale, and the scales of the rows."""
    largest_bits = tl.max(_magnitude(value), axis=1, keep_dims=True)
    is_finite = largest_bits < _INFINITY
    has_scale = is_finite & (largest_bits > 0)
    largest = tl.where(has_scale, _float(largest_bits), 1.0)
    most = tl.full(largest.shape, 127.0, tl.float32)
    scale = tl.maximum(tl.div_rn(largest, most), _SMALLEST_SCALE)
    scale = tl.minimum(scale, _LARGEST_INT8_SCALE)
    inverse = tl.minimum(tl.div_rn(most, largest), _LARGEST_INVERSE)
    shifted = tl.where(has_scale, value * inverse, 0.0) + _SHIFT
    codes = (_bits(shifted) - _SHIFT_BITS).to(tl.int8)
    scale_without = tl.where(is_finite, 0.0, _float(tl.full(largest.shape, _NAN, tl.int32)))
    return codes, tl.where(has_scale, scale, scale_without)


@triton.jit
def _int8_values(codes, scale):
    return _with_the_nan(codes.to(tl.float32) * scale)


@triton.jit
def _lost(total, decoded, before):
    return tl.where(_magnitude(decoded) < _INFINITY, total - decoded, before)


@triton.jit
def _load(at, here, IS_WHOLE: tl.constexpr):  # noqa: N803  Triton's way to write constants
    """Load numbers, without a mask if IS_WHOLE; a thread then loads several numbers at once."""
    if IS_WHOLE:
        return tl.load(at)
    return tl.load(at, mask=here, other=0)


@triton.jit
def _store(at, value, here, IS_WHOLE: tl.constexpr):  # noqa: N803
    if IS_WHOLE:
        tl.store(at, value)
    else:
        tl.store(at, value, mask=here)


@triton.jit
def _codes_at(data, CODEC: tl.constexpr):  # noqa: N803
    """Return a pointer to `data` with the type of the codec's encoded values."""
    if CODEC == "int8":
        return data.to(tl.pointer_type(tl.int8), bitcast=True)
    else:
        return data.to(tl.pointer_type(tl.int16), bitcast=True)


@triton.jit
# over budget: Triton's kernels take no dataclasses
def _encode_tile(
    values,
    residuals,
    to,
    count,
    tile,
    CODEC: tl.constexpr,  # noqa: N803
    FEEDBACK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    IS_WHOLE: tl.constexpr,  # noqa: N803
):
    codes_at = _codes_at(to, CODEC)
    scales_at = to.to(tl.pointer_type(tl.float32), bitcast=True)
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    at = row * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    here, row_here = at < count, row * COLUMNS < count
    value = _load(values + at, here, IS_WHOLE)
    if FEEDBACK:
        before = _load(residuals + at, here, IS_WHOLE)
        value = value + before
    if CODEC == "bf16":
        codes = _bf16_codes(value)
        decoded = _bf16_values(codes)
        _store(codes_at + at, codes, here, IS_WHOLE)
    elif CODEC == "fp16":
        codes, scale = _fp16_codes(value)
        decoded = _fp16_values(codes, scale)
        _store(scales_at + row * (COLUMNS // 2 + 1), scale, row_here, IS_WHOLE)
        _store(codes_at + (at + (row + 1) * 2), codes, here, IS_WHOLE)
    else:
        codes, scale = _int8_codes(value)
        decoded = _int8_values(codes, scale)
        _store(scales_at + row * (COLUMNS // 4 + 1), scale, row_here, IS_WHOLE)
        _store(codes_at + (at + (row + 1) * 4), codes, here, IS_WHOLE)
    if FEEDBACK:
        _store(residuals + at, _lost(value, decoded, before), here, IS_WHOLE)


@triton.jit
def _decode_tile(
    data,
    values,
    count,
    tile,
    CODEC: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    IS_WHOLE: tl.constexpr,  # noqa: N803
):
    codes_at = _codes_at(data, CODEC)
    scales_at = data.to(tl.pointer_type(tl.float32), bitcast=True)
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    at = row * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    here, row_here = at < count, row * COLUMNS < count
    if CODEC == "bf16":
        value = _bf16_values(_load(codes_at + at, here, IS_WHOLE))
    elif CODEC == "fp16":
        scale = _load(scales_at + row * (COLUMNS // 2 + 1), row_here, IS_WHOLE)
        value = _fp16_values(_load(codes_at + (at + (row + 1) * 2), here, IS_WHOLE), scale)
    else:
        scale = _load(scales_at + row * (COLUMNS // 4 + 1), row_here, IS_WHOLE)
        value = _int8_values(_load(codes_at + (at + (row + 1) * 4), here, IS_WHOLE), scale)
    _store(values + at, value, here, IS_WHOLE)


# over budget: Triton's kernels take no dataclasses
def _encode(
    values,
    residuals,
    to,
    count,
    num_tiles,
    CODEC: tl.constexpr,  # noqa: N803
    FEEDBACK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):
    """Encode tiles of rows, each row with its own scale, and store the rounding errors."""
    tile = tl.program_id(0)
    while tile < num_tiles:
        if (tile.to(tl.int64) + 1) * (ROWS * COLUMNS) <= count:
            _encode_tile(values, residuals, to, count, tile, CODEC, FEEDBACK, ROWS, COLUMNS, True)
        else:
            _encode_tile(values, residuals, to, count, tile, CODEC, FEEDBACK, ROWS, COLUMNS, False)
        tile += tl.num_programs(0)


def _decode(
    data,
    values,
    count,
    num_tiles,
    CODEC: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):
    """Decode tiles of rows, each row with its own scale."""
    tile = tl.program_id(0)
    while tile < num_tiles:
        if (tile.to(tl.int64) + 1) * (ROWS * COLUMNS) <= count:
            _decode_tile(data, values, count, tile, CODEC, ROWS, COLUMNS, True)
        else:
            _decode_tile(data, values, count, tile, CODEC, ROWS, COLUMNS, False)
        tile += tl.num_programs(0)


def _compiled(kernel: Any, unaligned: list[str]) -> Any:
    """Return a kernel that is not compiled again for other counts.

    Args:
        kernel: Function of the kernel.
        unaligned: Names of the arguments for whose alignments the kernel is not compiled again.
    """
    counts = ["count", "num_tiles"]
    specialize = triton.jit(do_not_specialize=counts, do_not_specialize_on_alignment=unaligned)
    return specialize(kernel)


# Kernels by whether all pointers are aligned; if only some are, the kernel for False is used.
ENCODE = {
    True: _compiled(_encode, []),
    False: _compiled(_encode, ["values", "residuals", "to"]),
}
DECODE = {True: _compiled(_decode, []), False: _compiled(_decode, ["data", "values"])}


def constants_of(layout: CodecLayout) -> dict[str, Any]:
    """Return the constants of a codec's kernels."""
    columns = TILE if layout.block == 1 else layout.block
    return {"CODEC": layout.name, "ROWS": TILE // columns, "COLUMNS": columns}


def encode(
    layout: CodecLayout,
    tensor: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    max_programs: int | None = None,
) -> None:
    """Enqueue the encoding of a tensor on the current stream.

    Args:
        layout: Layout of the codec.
        tensor: Float32 values on the GPU.
        out: Uint8 tensor for the result, in the GPU's memory or in pinned host memory.
        residual: Rounding errors of earlier calls; they are added to the values, and replaced by
            the errors of this call. None (the default) for no error feedback.
        max_programs: Largest number of programs that run at the same time. The default is no limit
            if `out` is in the GPU's memory, and otherwise 8, which fill the bandwidth of the bus.
    """
    is_aligned = _are_aligned(tensor, out, tensor if residual is None else residual)
    _launch(
        ENCODE[is_aligned],
        _max_programs(max_programs, out, _HOST_ENCODERS),
        layout,
        (tensor, tensor if residual is None else residual, out),
        tensor.numel(),
        FEEDBACK=residual is not None,
    )


def decode(
    layout: CodecLayout, data: torch.Tensor, out: torch.Tensor, *, max_programs: int | None = None
) -> None:
    """Enqueue the decoding of bytes on the current stream.

    Args:
        layout: Layout of the codec.
        data: Bytes that `encode` or the engine wrote, in the GPU's memory or in pinned host memory.
        out: Float32 tensor on the GPU for the values.
        max_programs: Largest number of programs that run at the same time. The default is no limit
            if `data` is in the GPU's memory, and otherwise 32, which fill the bandwidth of the bus.
    """
    limit = _max_programs(max_programs, data, _HOST_DECODERS)
    _launch(DECODE[_are_aligned(data, out)], limit, layout, (data, out), out.numel())


def _are_aligned(*tensors: torch.Tensor) -> bool:
    return all(tensor.data_ptr() % _ALIGNMENT == 0 for tensor in tensors)


def _max_programs(given: int | None, buffer: torch.Tensor, host_limit: int) -> int | None:
    return host_limit if given is None and buffer.device.type == "cpu" else given


def _launch(
    kernel: Any,
    max_programs: int | None,
    layout: CodecLayout,
    tensors: tuple[torch.Tensor, ...],
    count: int,
    **constants: bool,
) -> None:
    num_tiles = -(-count // TILE)
    kernel[(min(num_tiles, max_programs or num_tiles),)](
        *tensors,
        count,
        num_tiles,
        **constants_of(layout),
        **constants,
        **OPTIONS,
    )
