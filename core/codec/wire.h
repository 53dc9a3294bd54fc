#pragma once

#include <cstddef>

#include "slipstream/codec.h"

namespace slipstream {

// Encodes float32 values for the wire, and decodes them. Scales and elements have the byte order of
// the machine. Below, `max` is the largest finite magnitude of a block.
//
// - fp16: the scale (float32), then value / scale rounded to nearest even. The scale is the power
//   of two that brings `max` to [2^14, 2^15), but at least 2^-126, and 1 for a block of zeros. The
//   error of a value is at most the larger of 2^-11 of the value and 2^-39 of `max`. No finite
//   value becomes infinite: values near the end of the range of float32 saturate. Infinities and
//   NaN stay where they are, and the other values are scaled as if these were zeros.
// - bf16: rounded to nearest even, so the error is at most 2^-8 of a normal value. Values from
//   2^128 - 2^119 on become infinite. Infinities and NaN stay where they are.
// - int8: the scale (float32) is max / 127, but at least 2^-126, and 0 for a block of zeros. It is
//   followed by value / scale rounded to nearest even, in [-127, 127]. The error is at most 0.50002
//   of the scale. If a block contains an infinity or a NaN, all of its values arrive as NaN.
//
// A NaN that was encoded, or that decode_add() computes, is the positive quiet NaN without payload;
// Codec::kNone keeps the bits. The results have the same bits on every SIMD target, for any
// alignment, and however a buffer is cut at multiples of codec_block(). Pointers to encoded bytes
// need no alignment, and pointers to floats need that of a float. Buffers must not overlap. The
// functions are thread-safe and never block.

/// Writes encoded_bytes(codec, count) bytes to `to`.
void encode(Codec codec, const float* from, std::size_t count, std::byte* to);

/// Encodes from + residual, and stores what the codec lost in `residual`: the encoded sum minus its
/// decoded form. If the difference is not finite, `residual` stays as it was, so that a step that
/// is skipped because of an overflow leaves no trace.
void encode_with_residual(Codec codec, const float* from, float* residual, std::size_t count,
                          std::byte* to);

/// Reads encoded_bytes(codec, count) bytes and writes `count` floats. All bytes are valid input.
void decode(Codec codec, const std::byte* from, std::size_t count, float* to);

/// to[i] = to[i] + decoded[i]; decoded[i] is rounded to float32 before the addition.
void decode_add(Codec codec, const std::byte* from, std::size_t count, float* to);

}  // namespace slipstream
