#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "epilogue.h"
#include "place.h"

namespace slipstream::kernels {

/// A convolution of every channel by itself. Also what works on single numbers: an activation, a
/// sum of two tensors, a change of format are depthwise convolutions with one tap.
struct Depthwise {
  Number number = Number::kFloat32;  ///< of the input; of bytes the raw value counts, 0 to 255
  std::size_t batch = 1, rows = 1, columns = 1, channels = 0;  ///< of the output
  std::size_t kernel_rows = 1, kernel_columns = 1;
  std::ptrdiff_t row_step = 0, column_step = 0;  ///< from one tap to the next, bytes
  Pitch input;  ///< from one output pixel's first tap to the next one's
  Pitch output, addend;
  Aligned<float> weights;       ///< [tap][channel], channels padded to a multiple of 16
  Aligned<std::int8_t> quads;   ///< the same for the dot products of bytes: see pack_quads
  Aligned<std::uint8_t> pairs;  ///< the same for those of bfloat16: see pack_pairs
  Epilogue epilogue;

  [[nodiscard]] std::size_t lines() const { return batch * rows; }
};

/// True where this CPU multiplies bytes by bytes; then weights that are whole numbers of int8 are
/// worth packing for it.
bool has_quads();

/// `weights` is [tap][channel padded to 16], whole numbers in [-128, 127]. Gives, for 64 channels
/// at a time, what turns four neighbouring pixels into two neighbouring outputs `stride` pixels
/// apart.
Aligned<std::int8_t> pack_quads(const Depthwise& depthwise, std::size_t stride);

/// True where this CPU multiplies pairs of bfloat16, and `depthwise` suits that: kernels of 3 or 5
/// columns without gaps that go on by one pixel or two.
bool suits_pairs(const Depthwise& depthwise);

/// The weights as bfloat16, for 32 channels at a time: those of two rows of the kernel are pairs.
Aligned<std::uint8_t> pack_pairs(const Depthwise& depthwise);

/// Computes the output lines [begin, end): line = batch * rows + row.
void convolve(const Depthwise& depthwise, const Buffers& buffers, std::size_t begin,
              std::size_t end);

}  // namespace slipstream::kernels
