#pragma once

#include <cstddef>

#include "slipstream/codec.h"

namespace slipstream {

// Float32 values to and from what a lossy codec sends. Scales and elements are in the byte order of
// the machine. For `max`, the largest finite magnitude of a block:
//
// - fp16: the scale (float32), then value / scale rounded to nearest even. The scale is the power
//   of two that brings `max` to [2^14, 2^15), but at least 2^-126, and 1 for a block of zeros. The
//   error of a value is at most 2^-11 of the value or 2^-39 of `max`, whichever is more. No finite
//   value becomes an infinity: those next to the end of the range of float32 saturate.
//   Infinities and NaN arrive where they were, and the others are scaled as if they were zeros.
// - bf16: rounded to nearest even, so the error is at most 2^-8 of a normal value. A value from
//   2^128 - 2^119 on becomes an infinity. Infinities and NaN arrive where they were.
// - int8: the scale (float32) is max / 127, but at least 2^-126, and 0 for a block of zeros; then
//   value / scale rounded to nearest even, in [-127, 127]. The error is at most 0.50002 of the
//   scale. A block that holds an infinity or a NaN arrives as NaN throughout.
//
// A NaN that was encoded so, or is the sum of decode_add(), is the positive quiet NaN without
// payload; Codec::kNone keeps the bits. Whatever is written here, encoded or decoded, has the same
// bits on every SIMD target, for any alignment, and for any way to cut a buffer at multiples of
// codec_block(). Pointers to encoded bytes need no alignment, those to floats that of a float;
// buffers do not overlap. Thread-safe, never blocks.

/// Writes encoded_bytes(codec, count) bytes to `to`.
void encode(Codec codec, const float* from, std::size_t count, std::byte* to);

/// Encodes from + residual, and leaves in `residual` what the codec lost: its argument minus what
/// decode() will make of it. Where that is no finite number `residual` stays as it was, so that a
/// step that is skipped for its overflow leaves no trace.
void encode_with_residual(Codec codec, const float* from, float* residual, std::size_t count,
                          std::byte* to);

/// Reads encoded_bytes(codec, count) bytes and writes `count` floats. Any bytes are valid input.
void decode(Codec codec, const std::byte* from, std::size_t count, float* to);

/// to[i] = to[i] + decoded[i], each rounded to float32 first.
void decode_add(Codec codec, const std::byte* from, std::size_t count, float* to);

}  // namespace slipstream
