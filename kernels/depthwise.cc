#include "depthwise.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "epilogue-inl.h"
#include "levels.h"

#define KERNELS_LEVEL 0
#include "depthwise-inl.h"
#undef KERNELS_LEVEL
#if HWY_TARGET == HWY_AVX3
#define KERNELS_LEVEL 1
#include "depthwise-inl.h"
#undef KERNELS_LEVEL
#include "depthwise_pairs-inl.h"
#endif

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(convolve_floats);

namespace {

/// The number as bfloat16, rounded to nearest, ties to even.
std::uint16_t nearest_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// Rounds the weights to bfloat16. The rounding error of one tap is added to the next tap of its
/// channel, so that the errors cancel if neighbouring pixels are alike.
std::vector<std::uint16_t> halves_of_weights(const Depthwise& of, std::size_t padded) {
  std::vector<std::uint16_t> halves(of.weights.size());
  for (std::size_t channel = 0; channel < padded; ++channel) {
    float lost = 0;
    for (std::size_t at = channel; at < halves.size(); at += padded) {
      const float wanted = of.weights[at] + lost;
      halves[at] = nearest_half(wanted);
      lost = wanted - std::bit_cast<float>(static_cast<std::uint32_t>(halves[at]) << 16);
    }
  }
  return halves;
}

}  // namespace

bool has_quads() { return level() > 0; }

void convolve(const Depthwise& of, const Buffers& buffers, std::size_t begin, std::size_t end) {
#if defined(__x86_64__)
  if (!of.quads.empty()) {
    return N_AVX3_VNNI::convolve_quads(of, buffers, begin, end);
  }
  if (!of.pairs.empty()) return N_AVX3_BF16::convolve_pairs(of, buffers, begin, end);
#endif
  HWY_DYNAMIC_DISPATCH(convolve_floats)(of, buffers, begin, end);
}

Aligned<std::int8_t> pack_quads(const Depthwise& of, std::size_t stride) {
  const std::size_t padded = (of.channels + 15) / 16 * 16;
  const std::size_t blocks = (padded + 63) / 64;
  const std::size_t quads = (of.kernel_columns + stride + 3) / 4;
  Aligned<std::int8_t> packed(blocks * of.kernel_rows * quads * 512);
  std::int8_t* out = packed.data();
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t row = 0; row < of.kernel_rows; ++row) {
      for (std::size_t quad = 0; quad < quads; ++quad) {
        for (std::size_t which = 0; which < 2; ++which) {
          // Quads has channel 16 l + 4 v + i in lane 4 l + i of vector v.
          for (std::size_t at = 0; at < 256; ++at, ++out) {
            const std::size_t vector = at / 64, lane = at % 64 / 4, tap = quad * 4 + at % 4;
            const std::size_t channel = block * 64 + lane / 4 * 16 + vector * 4 + lane % 4;
            const std::size_t skipped = which * stride;
            if (channel >= padded || tap < skipped || tap - skipped >= of.kernel_columns) continue;
            const std::size_t index = row * of.kernel_columns + tap - skipped;
            *out = static_cast<std::int8_t>(of.weights[index * padded + channel]);
          }
        }
      }
    }
  }
  return packed;
}

bool suits_pairs(const Depthwise& of) {
  return level() == 2 && of.number == Number::kBFloat16 &&
         (of.kernel_columns == 3 || of.kernel_columns == 5) &&
         (of.input.pixel == of.column_step || of.input.pixel == 2 * of.column_step);
}

Aligned<std::uint8_t> pack_pairs(const Depthwise& of) {
  const std::size_t padded = (of.channels + 15) / 16 * 16;
  const std::size_t taps = of.kernel_columns, pairs = (of.kernel_rows + 1) / 2;
  Aligned<std::uint8_t> packed((padded + 31) / 32 * pairs * taps * 128);
  const auto halves = halves_of_weights(of, padded);
  auto* out = reinterpret_cast<std::uint16_t*>(packed.data());
  for (std::size_t block = 0; block < padded; block += 32) {
    for (std::size_t index = 0; index < pairs * taps; ++index) {
      // Lane 4 l + i of vector v belongs to channel 8 l + 4 v + i.
      for (std::size_t at = 0; at < 64; ++at, ++out) {
        const std::size_t vector = at / 32, lane = at % 32 / 2;
        const std::size_t channel = block + lane / 4 * 8 + vector * 4 + lane % 4;
        const std::size_t row = index / taps * 2 + at % 2;
        if (channel >= padded || row >= of.kernel_rows) continue;
        *out = halves[(row * taps + index % taps) * padded + channel];
      }
    }
  }
  return packed;
}

}  // namespace slipstream::kernels
#endif
