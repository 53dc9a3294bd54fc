#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Weights as products take them: every output channel's numbers one after another, rounded.
namespace slipstream::kernels {

/// Numbers where they lie: row r of channel c at data[c channel_step + r row_step].
struct Strided {
  const float* data;
  std::ptrdiff_t channel_step, row_step;
  std::size_t channels, rows;
};

/// The same numbers, [channel][row].
void as_floats(const Strided& weights, float* out);

/// Rounded to bfloat16, to nearest, ties to even; [channel][row].
void as_halves(const Strided& weights, std::uint16_t* out);

/// What as_bytes gives beside the numbers, one of each per channel.
struct Scales {
  float* scale;        ///< real = scale number; 1 where all are 0
  std::int32_t* sums;  ///< of the numbers
};

/// Whether this CPU adds products of bytes in 16 bits: two neighbours, which together may be no
/// more than 128 of one sign, or sums overflow. Products are faster where four such do not, those
/// of greatest_of_eight.
bool adds_pairs();

/// The greatest sum of one sign that such a CPU makes in 16 bits of two units of four numbers.
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

/// Whether no greatest_of_eight is more than 128, of so many eights.
bool fit_fours(const std::int8_t* numbers, std::size_t eights);

/// Rounded to int8 in [-127, 127], [channel][row], by the greatest of each channel. Where the CPU
/// `adds_pairs`, by sums of two neighbours as well, and, where rows are whole eights, of
/// greatest_of_eight; what such bytes stand for is rounded to the same ones again.
void as_bytes(const Strided& weights, std::int8_t* out, const Scales& scales);

}  // namespace slipstream::kernels
