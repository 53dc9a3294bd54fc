#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "slipstream/dtype.h"

namespace slipstream {

/// dst[i] = lower[i] op upper[i] for `count` elements.
///
/// `lower` is the operand of the lower rank: the order is fixed, so that every rank computes the
/// same bits. The bits do not depend on the SIMD target, the alignment or `count` either:
/// - integers wrap around; a bool is true unless zero, and results are 0 or 1 (sum, max and bor are
///   "or"; product, min and band are "and");
/// - float16 and bfloat16 are computed in float32 and rounded to nearest even;
/// - a NaN operand makes a NaN, for min and max too, and every NaN is stored as the positive quiet
///   NaN without payload; min and max of zeros of unlike sign are `lower`;
/// - complex products are two products and one sum per part, each rounded, without the recovery
///   of infinities of C's Annex G.
///
/// `dst` may be equal to `lower` or to `upper`; no other overlap. The pointers need no alignment.
/// `op` must be supported for `dtype`; kAverage adds, see divide(). Thread-safe, never blocks.
void reduce(DType dtype, ReduceOp op, void* dst, const void* lower, const void* upper,
            std::size_t count);

/// data[i] = data[i] / divisor in place, for `divisor` > 0 and any dtype but bool.
///
/// True division for floating point and complex (float16 and bfloat16 in float32, rounded to
/// nearest even; NaN as in reduce()), toward zero for integers. Thread-safe, never blocks.
void divide(DType dtype, void* data, std::size_t count, std::uint32_t divisor);

/// Name of the SIMD target chosen at run time, such as "AVX3" (AVX-512), "AVX2" or "NEON".
std::string_view simd_target();

}  // namespace slipstream
