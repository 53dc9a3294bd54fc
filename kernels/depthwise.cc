#include "depthwise.h"

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
#endif

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(convolve_floats);

bool has_quads() { return level() > 0; }

void convolve(const Depthwise& of, const Buffers& buffers, std::size_t begin, std::size_t end) {
#if defined(__x86_64__)
  if (!of.quads.empty()) {
    return N_AVX3_VNNI::convolve_quads(of, buffers, begin, end);
  }
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
          // Quads leaves channel 16 l + 4 v + i in lane 4 l + i of vector v.
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

}  // namespace slipstream::kernels
#endif
