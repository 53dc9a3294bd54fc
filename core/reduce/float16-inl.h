// This file is compiled once per SIMD target, so it has the guard that foreach_target.h toggles.
#if defined(SLIPSTREAM_CODEC_FLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_CODEC_FLOAT16_INL_H_
#undef SLIPSTREAM_CODEC_FLOAT16_INL_H_
#else
#define SLIPSTREAM_CODEC_FLOAT16_INL_H_
#endif

#include "hwy/highway.h"
#include "reduce/reduce_loop-inl.h"

// Targets on which Highway's conversion is one instruction, which rounds to nearest even. On other
// targets it is emulated, but without the promised rounding of subnormals and special values.
#undef SLIPSTREAM_NATIVE_FLOAT16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
#define SLIPSTREAM_NATIVE_FLOAT16 1
#else
#define SLIPSTREAM_NATIVE_FLOAT16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

using Floats = Lanes<float>;
using Words = Lanes<std::uint32_t>;

template <class V>
HWY_INLINE hn::Vec<Floats> as_floats(V v) {
  return hn::BitCast(Floats(), v);
}

template <class V>
HWY_INLINE hn::Vec<Words> as_words(V v) {
  return hn::BitCast(Words(), v);
}

/// Runs `Op`, which works on float32, on 16-bit floats in lanes of 32 bits: first on the even ones,
/// then on the odd ones, so that no lane moves. `Format::widen` takes the bits from the lower half
/// of a lane. `Format::narrow` stores them there, with zeros above.
template <class Format, class Op>
struct OnHalfLanes {
  Op op;

  template <class D, class V>
  HWY_INLINE V operator()(D bytes, V lower, V upper) const {
    const auto a = as_words(lower);
    const auto b = as_words(upper);
    const auto low_half = hn::Set(Words(), 0xFFFF);
    const auto even = narrow_result(hn::And(a, low_half), hn::And(b, low_half));
    const auto odd = narrow_result(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b));
    return hn::BitCast(bytes, hn::Or(even, hn::ShiftLeft<16>(odd)));
  }

  template <class V>
  HWY_INLINE V narrow_result(V lower, V upper) const {
    return Format::narrow(op(Floats(), Format::widen(lower), Format::widen(upper)));
  }
};

/// The upper half of a float32. Rounding would turn some NaN into a zero, but not the only NaN that
/// the kernels produce.
struct BFloat16 {
  template <class V>
  static HWY_INLINE hn::Vec<Floats> widen(V bits) {
    return as_floats(hn::ShiftLeft<16>(bits));
  }

  template <class V>
  static HWY_INLINE hn::Vec<Words> narrow(V value) {
    const auto bits = as_words(value);
    const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(Words(), 1));
    const auto bias = hn::Add(is_odd, hn::Set(Words(), 0x7FFF));
    return hn::ShiftRight<16>(hn::Add(bits, bias));
  }
};

template <class Op>
using OnBFloat16 = OnHalfLanes<BFloat16, Op>;

#if SLIPSTREAM_NATIVE_FLOAT16

template <class Op>
struct OnFloat16 {
  Op op;

  template <class D, class V>
  HWY_INLINE V operator()(D bytes, V lower, V upper) const {
    const Lanes<std::uint16_t> bits;
    const hn::Half<Lanes<std::uint16_t>> half;
    const auto a = hn::BitCast(bits, lower);
    const auto b = hn::BitCast(bits, upper);
    const auto low = on_half(hn::LowerHalf(half, a), hn::LowerHalf(half, b));
    const auto high = on_half(hn::UpperHalf(half, a), hn::UpperHalf(half, b));
    return hn::BitCast(bytes, hn::Combine(bits, high, low));
  }

  template <class V>
  HWY_INLINE V on_half(V lower, V upper) const {
    const Floats floats;
    const hn::Rebind<hwy::float16_t, Floats> halves;
    const auto result = op(floats, hn::PromoteTo(floats, hn::BitCast(halves, lower)),
                           hn::PromoteTo(floats, hn::BitCast(halves, upper)));
    return hn::BitCast(hn::DFromV<V>(), hn::DemoteTo(halves, result));
  }
};

#else

/// IEEE binary16: 1 bit of sign, 5 of exponent (bias 15), 10 of fraction.
///
/// If the bits are moved to their place in a float32, the exponent is too small by the difference
/// of the biases. The float unit completes subnormals: with the exponent of the smallest normal
/// number, the fraction represents the subnormal plus that number, which is then subtracted. In the
/// other direction, the unit's own rounding at that exponent is the rounding that we need. No
/// float32 subnormal occurs, so a thread that flushes subnormals to zero computes the same bits.
struct Float16 {
  template <class V>
  static HWY_INLINE hn::Vec<Floats> widen(V bits) {
    const Words words;
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(words, 0x7FFF)));
    const auto normal = hn::Add(magnitude, hn::Set(words, 112u << 23));
    const auto smallest_normal = as_floats(hn::Set(words, 113u << 23));
    const auto plus_smallest = as_floats(hn::Add(magnitude, hn::Set(words, 113u << 23)));
    const auto subnormal = as_words(hn::Sub(plus_smallest, smallest_normal));
    const auto infinite_or_nan = hn::Or(magnitude, hn::Set(words, 0xFFu << 23));

    const auto is_subnormal = hn::Lt(magnitude, hn::Set(words, 1u << 23));
    const auto is_finite = hn::Lt(magnitude, hn::Set(words, 31u << 23));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    return as_floats(hn::Or(sign, hn::IfThenElse(is_finite, finite, infinite_or_nan)));
  }

  template <class V>
  static HWY_INLINE hn::Vec<Words> narrow(V value) {
    const Words words;
    const auto bits = as_words(value);
    const auto sign = hn::And(bits, hn::Set(words, 0x80000000u));
    const auto magnitude = hn::Xor(bits, sign);
    // From 65520 on, rounding carries into the exponent, which gives the infinity.
    const auto is_odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(words, 1));
    const auto bias = hn::Add(is_odd, hn::Set(words, 0xFFFu - (112u << 23)));
    const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, bias));
    const auto half = hn::Set(words, 126u << 23);  // 0.5f, whose last bit is worth 2^-24
    const auto rounded = as_words(hn::Add(as_floats(magnitude), as_floats(half)));
    const auto subnormal = hn::Sub(rounded, half);
    const auto is_nan = hn::Gt(magnitude, hn::Set(words, 0xFFu << 23));
    const auto special = hn::IfThenElse(is_nan, hn::Set(words, 0x7E00), hn::Set(words, 0x7C00));

    const auto is_subnormal = hn::Lt(magnitude, hn::Set(words, 113u << 23));
    const auto is_finite = hn::Lt(magnitude, hn::Set(words, 143u << 23));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    const auto result = hn::IfThenElse(is_finite, finite, special);
    return hn::Or(result, hn::ShiftRight<16>(sign));
  }
};

template <class Op>
using OnFloat16 = OnHalfLanes<Float16, Op>;

#endif  // SLIPSTREAM_NATIVE_FLOAT16

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#endif
