#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "epilogue.h"
#include "pack.h"
#include "pitch.h"

// Convolutions of every size, and matrix products, as one loop: every output pixel is a row of a
// matrix product whose other factor is the packed weights. The addresses of its inputs follow from
// the pixel's address and a short list of runs, so nothing is copied ("indirect convolution":
// Dukhan, 2019).
namespace slipstream::kernels {

/// The numbers that a convolution multiplies, in units of four bytes.
enum class Operand : std::uint8_t {
  kFloat32,   ///< one float32 by one float32
  kBFloat16,  ///< two bfloat16 by two bfloat16, summed in float32
  kInt8,      ///< four uint8 by four int8, summed in int32; see adds_pairs() in weights.h
};

/// A run of the input of one output pixel: consecutive bytes.
struct Run {
  std::ptrdiff_t offset;  ///< bytes from the first tap of the pixel
  std::size_t units;      ///< length in units of four bytes
};

struct Convolution {
  Operand operand = Operand::kFloat32;
  std::size_t batch = 1, rows = 1, columns = 1;  ///< size of the output
  std::size_t channels = 0;                      ///< channels of the output
  Pitch input;  ///< from one output pixel's first tap to the next one's
  Pitch output;
  Pitch addend;  ///< of the tensor that the epilogue adds
  std::vector<Run> runs;
  Aligned<std::uint8_t> weights;  ///< in the order of pack()
  bool adds_twos = false;         ///< int8: sums of two units fit 16 bits; see add_twos()
  Aligned<float> totals;          ///< sum of each channel's weights, if buffers have ranges
  Epilogue epilogue;

  [[nodiscard]] std::size_t pixels() const { return batch * rows * columns; }
};

/// Computes the output pixels [begin, end) of the panels [first, last).
void convolve(const Convolution& convolution, const Buffers& buffers, std::size_t begin,
              std::size_t end, std::size_t first, std::size_t last);

}  // namespace slipstream::kernels
