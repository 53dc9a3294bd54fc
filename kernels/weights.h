#pragma once

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

/// Whether this CPU adds two products of bytes in 16 bits: then two neighbours of one sign may
/// together be no more than 128, or sums overflow.
bool adds_pairs();

/// Rounded to int8 in [-127, 127], by the greatest of each channel, or, where the CPU `adds_pairs`,
/// by the greatest sum of two neighbours; [channel][row].
void as_bytes(const Strided& weights, std::int8_t* out, const Scales& scales);

}  // namespace slipstream::kernels
