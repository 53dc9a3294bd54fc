#include "convolution.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

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

}  // namespace slipstream::kernels
#endif
