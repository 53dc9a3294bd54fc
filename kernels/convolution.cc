#include "convolution.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convolution.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "epilogue-inl.h"
#include "levels.h"

#define KERNELS_LEVEL 0
#include "convolution-inl.h"
#undef KERNELS_LEVEL
#if HWY_TARGET == HWY_AVX3
#define KERNELS_LEVEL 1
#include "convolution-inl.h"
#undef KERNELS_LEVEL
#define KERNELS_LEVEL 2
#include "convolution-inl.h"
#undef KERNELS_LEVEL
#endif

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(convolve);
HWY_EXPORT(groups_at_once);

std::size_t groups_at_once() { return HWY_DYNAMIC_DISPATCH(groups_at_once)(); }

void convolve(const Convolution& of, const Buffers& buffers, std::size_t begin, std::size_t end,
              std::size_t first, std::size_t last) {
  if (level() == 2) {
    N_AVX3_BF16::convolve(of, buffers, begin, end, first, last);
  } else if (level() == 1) {
    N_AVX3_VNNI::convolve(of, buffers, begin, end, first, last);
  } else {
    HWY_DYNAMIC_DISPATCH(convolve)(of, buffers, begin, end, first, last);
  }
}

Aligned<std::uint8_t> pack(const Matrix& matrix) {
  Aligned<std::uint8_t> packed((matrix.channels + 15) / 16 * 16 * matrix.units * 4);
  pack_into(matrix, packed.data());
  return packed;
}

void pack_into(const Matrix& matrix, std::uint8_t* packed) {
  const Panels panels(matrix.channels, groups_at_once());
  for (std::size_t which = 0; which < panels.count; ++which) {
    const std::size_t first = panels.begin(which) * 16;
    const std::size_t wide = panels.begin(which + 1) * 16 - first;
    const std::size_t count = std::min(wide, matrix.channels - first);
    std::uint8_t* panel = packed + first * matrix.units * 4;
    const std::uint8_t* from =
        matrix.data + static_cast<std::ptrdiff_t>(first) * matrix.channel_step;
    for (std::size_t unit = 0; unit < matrix.units; ++unit) {
      std::uint8_t* to = panel + unit * wide * 4;
      const std::uint8_t* row = from + static_cast<std::ptrdiff_t>(unit) * matrix.unit_step;
      if (matrix.channel_step == 4) {
        std::memcpy(to, row, count * 4);
      } else {
        for (std::size_t channel = 0; channel < count; ++channel, row += matrix.channel_step) {
          std::memcpy(to + channel * 4, row, 4);
        }
      }
      std::memset(to + count * 4, 0, (wide - count) * 4);
    }
  }
}

}  // namespace slipstream::kernels
#endif
