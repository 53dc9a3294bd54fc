// This file is compiled once per SIMD target, so it has the guard that foreach_target.h toggles.
#if defined(SLIPSTREAM_CODEC_NAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_CODEC_NAN_INL_H_
#undef SLIPSTREAM_CODEC_NAN_INL_H_
#else
#define SLIPSTREAM_CODEC_NAN_INL_H_
#endif

#include "hwy/highway.h"
#include "reduce/targets.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// If both operands are NaN, targets and even compilers differ in whose payload survives, and x86
/// and ARM differ in the sign of a new NaN. Therefore every NaN is replaced by the same one.
template <class D>
HWY_INLINE hn::Vec<D> the_nan(D lanes) {
  using Bits = hn::RebindToUnsigned<D>;
  constexpr auto kQuiet = sizeof(hn::TFromD<D>) == 4 ? 0x7FC00000u : 0x7FF8000000000000u;
  return hn::BitCast(lanes, hn::Set(Bits(), static_cast<hn::TFromD<Bits>>(kQuiet)));
}

template <class D, class V>
HWY_INLINE V with_the_nan(D lanes, V v) {
  return hn::IfThenElse(hn::Eq(v, v), v, the_nan(lanes));
}

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#endif
