// Activations of vectors of float32. Included once per SIMD target, like Highway's own headers.
#if defined(SLIPSTREAM_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_KERNELS_ACTIVATION_INL_H_
#undef SLIPSTREAM_KERNELS_ACTIVATION_INL_H_
#else
#define SLIPSTREAM_KERNELS_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include "curve.h"
#include "epilogue.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// True if this target's minimum and maximum return the second operand if either is NaN.
constexpr bool kSecondOfNaN = HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

/// max(x, low); NaN stays NaN.
template <class V>
HWY_INLINE V at_least(V low, V x) {
  const V most = hn::Max(low, x);
  return kSecondOfNaN ? most : hn::IfThenElse(hn::IsNaN(x), x, most);
}

/// min(x, high); NaN stays NaN.
template <class V>
HWY_INLINE V at_most(V high, V x) {
  const V least = hn::Min(high, x);
  return kSecondOfNaN ? least : hn::IfThenElse(hn::IsNaN(x), x, least);
}

/// x limited to [low, high]; NaN stays NaN.
template <class V>
HWY_INLINE V clip(V low, V x, V high) {
  return at_most(high, at_least(low, x));
}

/// The greater of two numbers; NaN if either is NaN.
template <class V>
HWY_INLINE V greater(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, at_least(a, b));
}

/// 1 / x, wrong by at most the last bit: the CPU's estimate and one Newton step.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V reciprocal(D d, V x) {
  const V estimate = hn::ApproximateReciprocal(x);
  return hn::Mul(estimate, hn::NegMulAdd(x, estimate, hn::Set(d, 2.0F)));
}

/// e^x for x in [-88, 88]. Larger and smaller x count as the nearest limit; e^-88 is 0 if numbers
/// below 1.2e-38 are; NaN stays NaN. The result is a power of two, for the integer part of x log2
/// e, times a polynomial for 2^r on [-1/2, 1/2] with a relative error of 8e-8. Rounding log2 e adds
/// 1.4e-8 |x|.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponential(D d, V x) {
  const V log2e = hn::Set(d, 1.44269504F);
  x = clip(hn::Set(d, -88.0F), x, hn::Set(d, 88.0F));
#if HWY_TARGET == HWY_AVX3
  const V whole = hn::Round(hn::Mul(x, log2e));
#else
  // Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits; adding 127 more makes it the
  // exponent bits of that power of two.
  const V shift = hn::Set(d, 12582912.0F + 127.0F);
  const V shifted = hn::MulAdd(x, log2e, shift);
  const V whole = hn::Sub(shifted, shift);
#endif
  const V rest = hn::MulSub(x, log2e, whole);
  V sum = hn::MulAdd(rest, hn::Set(d, 0.00132765F), hn::Set(d, 0.00967554F));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 0.05550713F));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 0.2402212F));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 0.69314697F));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 1.00000007F));
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_scalef_ps(sum.raw, whole.raw)};
#else
  const hn::RebindToSigned<D> di;
  return hn::Mul(sum, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  return reciprocal(d, hn::Add(hn::Set(d, 1.0F), exponential(d, hn::Neg(x))));
}

/// x (1 + erf(x / sqrt 2)) / 2, with an error of erf of 2e-7 (Abramowitz and Stegun, 7.1.26).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  // erf is 1 from 10 on; without the limit the reciprocal of infinity would give NaN.
  const V z = at_most(hn::Set(d, 10.0F), hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678F)));
  const V t = reciprocal(d, hn::MulAdd(z, hn::Set(d, 0.3275911F), hn::Set(d, 1.0F)));
  V sum = hn::Set(d, 1.061405429F);
  sum = hn::MulAdd(sum, t, hn::Set(d, -1.453152027F));
  sum = hn::MulAdd(sum, t, hn::Set(d, 1.421413741F));
  sum = hn::MulAdd(sum, t, hn::Set(d, -0.284496736F));
  sum = hn::MulAdd(sum, t, hn::Set(d, 0.254829592F));
  const V tail = hn::Mul(hn::Mul(sum, t), exponential(d, hn::Neg(hn::Mul(z, z))));
  const V half = hn::Mul(x, hn::Set(d, 0.5F));
  return hn::MulAdd(hn::Abs(half), hn::Sub(hn::Set(d, 1.0F), tail), half);
}

template <Activation kActivation, class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, V x, float alpha, float beta) {
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, 1.0F);
  if constexpr (kActivation == Activation::kSilu) return hn::Mul(x, sigmoid(d, x));
  if constexpr (kActivation == Activation::kSigmoid) return sigmoid(d, x);
  if constexpr (kActivation == Activation::kGelu) return gelu(d, x);
  if constexpr (kActivation == Activation::kTanh) {
    return hn::MulSub(hn::Set(d, 2.0F), sigmoid(d, hn::Add(x, x)), one);
  }
  if constexpr (kActivation == Activation::kHardSwish) {
    const V gate = hn::MulAdd(x, hn::Set(d, 1.0F / 6.0F), hn::Set(d, 0.5F));
    return hn::Mul(x, clip(zero, gate, one));
  }
  if constexpr (kActivation == Activation::kHardSigmoid) {
    const V gate = hn::MulAdd(x, hn::Set(d, alpha), hn::Set(d, beta));
    return clip(zero, gate, one);
  }
  if constexpr (kActivation == Activation::kLeakyRelu) {
    return hn::MulAdd(at_most(zero, x), hn::Set(d, alpha), at_least(zero, x));
  }
  if constexpr (kActivation == Activation::kInverseRoot) return hn::Div(one, hn::Sqrt(x));
  return x;
}

/// An activation, as precise as the format in which its result is written.
template <Activation kActivation, Number kOutput>
struct Activator {
  explicit HWY_INLINE Activator(const Epilogue& epilogue)
      : alpha_(epilogue.alpha), beta_(epilogue.beta) {}
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    return activate<kActivation>(d, x, alpha_, beta_);
  }

 private:
  float alpha_, beta_;
};

#if HWY_TARGET == HWY_AVX3
/// SiLU and GELU are max(x, 0) + rest(|x|). The rest is one of 32 polynomials whose coefficients
/// stay in registers. At -infinity both are infinity times 0, so NaN.
template <Activation kActivation, Number kOutput>
  requires(kActivation == Activation::kSilu || kActivation == Activation::kGelu)
struct Activator<kActivation, kOutput> {
  explicit HWY_INLINE Activator(const Epilogue& /*epilogue*/) {
    const Curve& curve = curve_of(kActivation, kDegree);
    for (std::size_t power = 0; power <= kPowers; ++power) {
      for (std::size_t half = 0; half < 2; ++half) {
        coefficients_[power][half] = _mm512_loadu_ps(curve.coefficients[power] + 16 * half);
      }
    }
    reach_ = _mm512_set1_ps(curve.reach);
    per_segment_ = _mm512_set1_ps((Curve::kSegments - 1) / curve.reach);
  }
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D /*d*/, V x) const {
    // Adding 2^23 leaves the nearest integer in the lowest bits.
    const __m512 round = _mm512_set1_ps(8388608.0F);
    __m512 at = _mm512_min_ps(reach_, _mm512_abs_ps(x.raw));
    __m512i segment;
    if constexpr (is_local(kDegree)) {
      at = _mm512_mul_ps(at, per_segment_);
      segment = _mm512_castps_si512(_mm512_add_ps(at, round));
      at = _mm512_reduce_ps(at, _MM_FROUND_TO_NEAREST_INT);
    } else {
      segment = _mm512_castps_si512(_mm512_fmadd_ps(at, per_segment_, round));
    }
    __m512 sum = coefficient(kPowers, segment);
#pragma GCC unroll 8
    for (std::size_t power = kPowers; power-- > 0;) {
      sum = _mm512_fmadd_ps(sum, at, coefficient(power, segment));
    }
    return V{_mm512_add_ps(positive(x.raw), sum)};
  }

 private:
  static constexpr Degree kDegree = kOutput == Number::kUInt8      ? Degree::kLines
                                    : kOutput == Number::kBFloat16 ? Degree::kParabolas
                                                                   : Degree::kQuintics;
  static constexpr auto kPowers = static_cast<std::size_t>(kDegree);

  /// max(x, 0), and NaN if x is NaN or -infinity. The instruction takes an answer of four bits for
  /// each class of x.
  static HWY_INLINE __m512 positive(__m512 x) {
    constexpr int kItself = 1, kNaN = 3, kZero = 8;
    constexpr int kAnswers = kNaN | kNaN << 4 | kZero << 8 | kItself << 12 | kNaN << 16 |
                             kItself << 20 | kZero << 24 | kItself << 28;
    return _mm512_fixupimm_ps(x, x, _mm512_set1_epi32(kAnswers), 0);
  }
  HWY_INLINE __m512 coefficient(std::size_t power, __m512i segment) const {
    return _mm512_permutex2var_ps(coefficients_[power][0], segment, coefficients_[power][1]);
  }

  __m512 coefficients_[kPowers + 1][2], reach_, per_segment_;
};
#endif

#if HWY_TARGET == HWY_AVX2
/// x / (1 + 2^p(x)) for results that become bytes. The relative error is 5e-4, a tenth of a step if
/// 255 steps reach 200. For SiLU p is -x log2 e; for GELU p is fitted, which adds an error of
/// 2.7e-4.
template <Activation kActivation>
  requires(kActivation == Activation::kSilu || kActivation == Activation::kGelu)
struct Activator<kActivation, Number::kUInt8> {
  explicit HWY_INLINE Activator(const Epilogue& /*epilogue*/) {}
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    const hn::RebindToSigned<D> di;
    const V most = hn::Set(d, 126.0F);
    V slope = hn::Set(d, -1.44269504F);
    if constexpr (kActivation == Activation::kGelu) {
      slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, -0.10012559F), hn::Set(d, -2.30876534F));
    }
    const V power = hn::Mul(x, slope);
    const V bounded = hn::Min(hn::Max(power, hn::Neg(most)), most);
    // Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits.
    const V shift = hn::Set(d, 12582912.0F);
    const V shifted = hn::Add(bounded, shift);
    const V rest = hn::Sub(bounded, hn::Sub(shifted, shift));
    // A fit of 2^rest on [-1/2, 1/2] with a relative error of 7.5e-5.
    V sum = hn::MulAdd(rest, hn::Set(d, 0.05517177F), hn::Set(d, 0.24261137F));
    sum = hn::MulAdd(sum, rest, hn::Set(d, 0.69326097F));
    sum = hn::MulAdd(sum, rest, hn::Set(d, 0.99992803F));
    const auto whole = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
    const V exponential = hn::BitCast(d, hn::Add(hn::BitCast(di, sum), whole));
    return hn::Mul(x, hn::ApproximateReciprocal(hn::Add(exponential, hn::Set(d, 1.0F))));
  }
};
#endif

/// Calls `work` with the activation as a compile-time constant: work(std::integral_constant<...>).
template <class Work>
HWY_INLINE void with_activation(Activation activation, const Work& work) {
  switch (activation) {
    case Activation::kNone:
      return work(std::integral_constant<Activation, Activation::kNone>());
    case Activation::kSilu:
      return work(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kHardSwish:
      return work(std::integral_constant<Activation, Activation::kHardSwish>());
    case Activation::kSigmoid:
      return work(std::integral_constant<Activation, Activation::kSigmoid>());
    case Activation::kHardSigmoid:
      return work(std::integral_constant<Activation, Activation::kHardSigmoid>());
    case Activation::kGelu:
      return work(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kTanh:
      return work(std::integral_constant<Activation, Activation::kTanh>());
    case Activation::kLeakyRelu:
      return work(std::integral_constant<Activation, Activation::kLeakyRelu>());
    case Activation::kInverseRoot:
      return work(std::integral_constant<Activation, Activation::kInverseRoot>());
  }
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
