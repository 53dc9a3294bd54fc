#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "reduce/targets.h"
#include "slipstream/dtype.h"

namespace slipstream {

/// The buffers of reduce() without types; `dst` may equal `lower` or `upper`.
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

/// divide() for floating point and complex; it reads only `lower`.
void divide_floats(DType dtype, const Operands& operands, std::uint32_t divisor);

/// Name of the SIMD target that the functions above run on.
std::string_view kernel_target();

}  // namespace slipstream
