#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "slipstream/dtype.h"

// To be included before Highway: which of its targets are compiled.
// A CPU with SSSE3 and no more is too rare to be worth compiling for; it takes the baseline.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
// The baseline must have vectors, the kernels work on halves and pairs of lanes. Highway avoids
// EMU128 with gcc before 12.3 for a bug in gcc's vectoriser, which is switched off for this layer.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 0
#endif

namespace slipstream {

/// The untyped form of reduce()'s buffers; `dst` may be equal to `lower` or to `upper`.
struct Operands {
  std::uint8_t* dst;
  const std::uint8_t* lower;
  const std::uint8_t* upper;
  std::size_t size_bytes;
};

/// reduce() for integers and bool.
void reduce_integers(DType dtype, ReduceOp op, const Operands& operands);

/// reduce() for floating point and complex.
void reduce_floats(DType dtype, ReduceOp op, const Operands& operands);

/// divide() for floating point and complex: reads `lower` only.
void divide_floats(DType dtype, const Operands& operands, std::uint32_t divisor);

/// Name of the SIMD target that the functions above run on.
std::string_view kernel_target();

}  // namespace slipstream
