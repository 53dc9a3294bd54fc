#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "epilogue.h"
#include "pitch.h"

namespace slipstream::kernels {

/// A convolution of each channel by itself. It also does element-wise work: an activation, the sum
/// of two tensors and a change of format are depthwise convolutions with one tap.
struct Depthwise {
  Number number = Number::kFloat32;  ///< format of the input; bytes count as 0 to 255
  std::size_t batch = 1, rows = 1, columns = 1, channels = 0;  ///< size of the output
  std::size_t kernel_rows = 1, kernel_columns = 1;
  std::ptrdiff_t row_step = 0, column_step = 0;  ///< bytes from one tap to the next
  Pitch input;  ///< from one output pixel's first tap to the next one's
  Pitch output, addend;
  Aligned<float> weights;       ///< [tap][channel], channels padded to a multiple of 16
  Aligned<std::int8_t> quads;   ///< for dot products of bytes: see pack_quads
  Aligned<std::uint8_t> pairs;  ///< for dot products of bfloat16: see pack_pairs
  Epilogue epilogue;

  [[nodiscard]] std::size_t lines() const { return batch * rows; }
};

/// True if this CPU has dot products of bytes; then weights that are int8 integers are worth
/// packing for them.
bool has_quads();

/// Packs the weights, integers in [-128, 127], for 64 channels at a time, so that four neighbouring
/// pixels give two neighbouring outputs `stride` pixels apart.
Aligned<std::int8_t> pack_quads(const Depthwise& depthwise, std::size_t stride);

/// True if this CPU has dot products of bfloat16, and `depthwise` suits them: its kernel has 3 or 5
/// columns without gaps, and its stride is 1 or 2.
bool suits_pairs(const Depthwise& depthwise);

/// Packs the weights as bfloat16, for 32 channels at a time. The weights of two rows of the kernel
/// form pairs.
Aligned<std::uint8_t> pack_pairs(const Depthwise& depthwise);

/// Computes the output lines [begin, end): line = batch * rows + row.
void convolve(const Depthwise& depthwise, const Buffers& buffers, std::size_t begin,
              std::size_t end);

}  // namespace slipstream::kernels
