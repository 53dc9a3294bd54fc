#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Rounding of weights for products: every output channel's numbers become contiguous.
namespace slipstream::kernels {

/// A matrix of numbers in memory: row r of channel c is data[c channel_step + r row_step].
struct Strided {
  const float* data;
  std::ptrdiff_t channel_step, row_step;
  std::size_t channels, rows;
};

/// Copies the numbers to [channel][row].
void as_floats(const Strided& weights, float* out);

/// Rounds to bfloat16, to nearest, ties to even, in the order [channel][row].
void as_halves(const Strided& weights, std::uint16_t* out);

/// Further results of as_bytes, one number per channel.
struct Scales {
  float* scale;        ///< real = scale number; 1 if all numbers are 0
  std::int32_t* sums;  ///< sum of the numbers
};

/// True if this CPU adds products of neighbouring bytes in 16 bits. Two neighbouring weights of one
/// sign may then add up to at most 128, or sums overflow. Products are faster if the sums of four
/// in greatest_of_eight stay within 128 as well.
bool adds_pairs();

/// The greatest sum of weights of one sign that such a CPU adds in 16 bits, for two units of four
/// numbers.
template <typename Number>
float greatest_of_eight(const Number* units) {
  float greatest = 0;
  for (const std::size_t first : {0, 2}) {
    float above = 0, below = 0;
    for (const std::size_t number : {0, 1, 4, 5}) {
      const auto value = static_cast<float>(units[first + number]);
      (value > 0 ? above : below) += value;
    }
    greatest = std::max({greatest, above, -below});
  }
  return greatest;
}

/// True if greatest_of_eight is at most 128 for each of `eights` groups of eight numbers.
bool fit_fours(const std::int8_t* numbers, std::size_t eights);

/// Rounds to int8 in [-127, 127], in the order [channel][row], scaled by the greatest number of
/// each channel. If the CPU `adds_pairs`, the scale also limits sums of two neighbours and, if rows
/// are a multiple of eight, greatest_of_eight. Rounding the represented numbers again gives the
/// same bytes.
void as_bytes(const Strided& weights, std::int8_t* out, const Scales& scales);

}  // namespace slipstream::kernels
