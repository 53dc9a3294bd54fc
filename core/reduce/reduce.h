#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "slipstream/dtype.h"

namespace slipstream {

/// Computes dst[i] = lower[i] op upper[i] for `count` elements.
///
/// `lower` is the operand of the lower rank. The order is fixed, so all ranks compute the same
/// bits. The bits do not depend on the SIMD target, the alignment or `count` either:
/// - Integers wrap around. A bool is true unless zero, and results are 0 or 1 (sum, max and bor are
///   "or"; product, min and band are "and").
/// - float16 and bfloat16 are computed in float32 and rounded to nearest even.
/// - If an operand is NaN, the result is NaN, for min and max too. Every NaN is stored as the
///   positive quiet NaN without payload. The min and max of zeros with different signs is `lower`.
/// - Each part of a complex product is two products and one sum, each rounded. Infinities are not
///   recovered as in C's Annex G.
///
/// `dst` may equal `lower` or `upper`; there must be no other overlap. The pointers need no
/// alignment. `op` must be supported for `dtype`; kAverage adds, see divide(). Thread-safe, never
/// blocks.
void reduce(DType dtype, ReduceOp op, void* dst, const void* lower, const void* upper,
            std::size_t count);

/// Computes data[i] = data[i] / divisor in place, for `divisor` > 0 and every dtype except bool.
///
/// The division is exact for floating point and complex, then rounded (float16 and bfloat16 are
/// computed in float32 and rounded to nearest even; NaN as in reduce()). Integers are rounded
/// toward zero. Thread-safe, never blocks.
void divide(DType dtype, void* data, std::size_t count, std::uint32_t divisor);

/// Name of the SIMD target chosen at run time, such as "AVX3" (AVX-512), "AVX2" or "NEON".
std::string_view simd_target();

}  // namespace slipstream
