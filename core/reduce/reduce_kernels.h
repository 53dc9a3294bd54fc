#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "reduce/targets.h"
#include "slipstream/dtype.h"

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
