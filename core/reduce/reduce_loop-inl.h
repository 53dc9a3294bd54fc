// This file is compiled once per SIMD target, so it has the guard that foreach_target.h toggles.
#if defined(SLIPSTREAM_CODEC_REDUCE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_CODEC_REDUCE_LOOP_INL_H_
#undef SLIPSTREAM_CODEC_REDUCE_LOOP_INL_H_
#else
#define SLIPSTREAM_CODEC_REDUCE_LOOP_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "reduce/reduce_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<std::uint8_t>;

/// Lanes of T that fill one vector of bytes.
template <typename T>
using Lanes = hn::Repartition<T, Bytes>;

/// Computes dst = kernel(lower, upper), one vector of bytes after another; the size must be a
/// multiple of a vector. Loads and stores use bytes, so the pointers need no alignment.
template <class Kernel>
HWY_NOINLINE void for_each_vector(const Operands& operands, Kernel kernel) {
  // By value, because for the compiler a store of bytes through dst might change `operands`.
  const auto [dst, lower, upper, size] = operands;
  const Bytes bytes;
  const std::size_t step = hn::Lanes(bytes);
  for (std::size_t at = 0; at < size; at += step) {
    const auto result = kernel(bytes, hn::LoadU(bytes, lower + at), hn::LoadU(bytes, upper + at));
    hn::StoreU(result, bytes, dst + at);
  }
}

/// The same for any size. The tail is padded with zeros and runs through the same code, so that its
/// bits cannot differ from those of the body.
template <class Kernel>
void run(const Operands& operands, Kernel kernel) {
  const std::size_t step = hn::Lanes(Bytes());
  const std::size_t tail = operands.size_bytes % step;
  const std::size_t body = operands.size_bytes - tail;
  for_each_vector({operands.dst, operands.lower, operands.upper, body}, kernel);
  if (tail == 0) return;
  std::uint8_t lower[hn::MaxLanes(Bytes())] = {};
  std::uint8_t upper[hn::MaxLanes(Bytes())] = {};
  std::memcpy(lower, operands.lower + body, tail);
  std::memcpy(upper, operands.upper + body, tail);
  for_each_vector({lower, lower, upper, step}, kernel);
  std::memcpy(operands.dst + body, lower, tail);
}

/// Runs `Op`, which works on lanes of T, on vectors of bytes.
template <typename T, class Op>
struct OnLanes {
  Op op;

  template <class D, class V>
  HWY_INLINE V operator()(D bytes, V lower, V upper) const {
    const Lanes<T> lanes;
    const auto result = op(lanes, hn::BitCast(lanes, lower), hn::BitCast(lanes, upper));
    return hn::BitCast(bytes, result);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#endif
