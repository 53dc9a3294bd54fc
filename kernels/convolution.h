#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "epilogue.h"
#include "pack.h"
#include "place.h"

// Convolutions of every size, and matrix products, as one loop: every output pixel is a row of a
// product whose other side is the packed weights; where its inputs lie follows from the pixel's
// address and a short list of runs, so nothing is copied ("indirect convolution": Dukhan, 2019).
namespace slipstream::kernels {

/// What a convolution multiplies. Each is taken in units of four bytes.
enum class Operand : std::uint8_t {
  kFloat32,   ///< one float32 by one float32
  kBFloat16,  ///< two bfloat16 by two bfloat16, summed in float32
  kInt8,      ///< four uint8 by four int8, summed in int32; see adds_pairs() in weights.h
};

/// Bytes of one pixel's input that lie one after another.
struct Run {
  std::ptrdiff_t offset;  ///< from the first tap of the pixel, bytes
  std::size_t units;      ///< of four bytes
};

struct Convolution {
  Operand operand = Operand::kFloat32;
  std::size_t batch = 1, rows = 1, columns = 1;  ///< of the output
  std::size_t channels = 0;                      ///< of the output
  Pitch input;  ///< from one output pixel's first tap to the next one's
  Pitch output;
  Pitch addend;  ///< of what the epilogue adds
  std::vector<Run> runs;
  Aligned<std::uint8_t> weights;  ///< as pack() leaves them
  bool adds_twos = false;         ///< int8: 16 bits hold what two units give; see add_twos()
  Aligned<float> totals;          ///< of each channel's weights, where buffers have ranges
  Epilogue epilogue;

  [[nodiscard]] std::size_t pixels() const { return batch * rows * columns; }
};

/// Computes the output pixels [begin, end) of the panels [first, last).
void convolve(const Convolution& convolution, const Buffers& buffers, std::size_t begin,
              std::size_t end, std::size_t first, std::size_t last);

}  // namespace slipstream::kernels
