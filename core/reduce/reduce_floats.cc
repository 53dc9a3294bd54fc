#include "reduce/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/reduce_floats.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "hwy/highway.h"
#include "reduce/float16-inl.h"
#include "reduce/nan-inl.h"
#include "reduce/reduce_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

struct FloatSum {
  template <class D, class V>
  HWY_INLINE V operator()(D lanes, V lower, V upper) const {
    return with_the_nan(lanes, hn::Add(lower, upper));
  }
};

struct FloatProduct {
  template <class D, class V>
  HWY_INLINE V operator()(D lanes, V lower, V upper) const {
    return with_the_nan(lanes, hn::Mul(lower, upper));
  }
};

// Highway's Min and Max differ between targets for NaN and for zeros with different signs, so they
// are not used.
template <class D, class V, class M>
HWY_INLINE V pick(D lanes, V lower, V upper, M take_upper) {
  const auto is_number = hn::And(hn::Eq(lower, lower), hn::Eq(upper, upper));
  return hn::IfThenElse(is_number, hn::IfThenElse(take_upper, upper, lower), the_nan(lanes));
}

struct FloatMin {
  template <class D, class V>
  HWY_INLINE V operator()(D lanes, V lower, V upper) const {
    return pick(lanes, lower, upper, hn::Lt(upper, lower));
  }
};

struct FloatMax {
  template <class D, class V>
  HWY_INLINE V operator()(D lanes, V lower, V upper) const {
    return pick(lanes, lower, upper, hn::Gt(upper, lower));
  }
};

struct Quotient {
  double divisor;

  template <class D, class V>
  HWY_INLINE V operator()(D lanes, V value, V /*value*/) const {
    const auto by = hn::Set(lanes, static_cast<hn::TFromD<D>>(divisor));
    return with_the_nan(lanes, hn::Div(value, by));
  }
};

/// (a + bi)(c + di) = (ac - bd) + (ad + bc)i. This file is compiled without contraction to fused
/// multiply-add, which only some targets have.
struct ComplexProduct {
  template <class D, class V>
  HWY_INLINE V operator()(D lanes, V lower, V upper) const {
    const auto ac_ad = hn::Mul(hn::DupEven(lower), upper);
    const auto bd_bc = hn::Mul(hn::DupOdd(lower), hn::Reverse2(lanes, upper));
    const auto product = hn::OddEven(hn::Add(ac_ad, bd_bc), hn::Sub(ac_ad, bd_bc));
    return with_the_nan(lanes, product);
  }
};

/// Treats complex numbers as two floats each; everything except the product works this way.
template <class Op>
void run_on(DType dtype, const Operands& operands, Op op) {
  switch (dtype) {
    case DType::kFloat16:
      return run(operands, OnFloat16<Op>{op});
    case DType::kBFloat16:
      return run(operands, OnBFloat16<Op>{op});
    case DType::kFloat32:
    case DType::kComplex64:
      return run(operands, OnLanes<float, Op>{op});
    default:
      return run(operands, OnLanes<double, Op>{op});
  }
}

void multiply(DType dtype, const Operands& operands) {
  if (dtype == DType::kComplex64) return run(operands, OnLanes<float, ComplexProduct>{});
  if (dtype == DType::kComplex128) return run(operands, OnLanes<double, ComplexProduct>{});
  run_on(dtype, operands, FloatProduct());
}

void reduce_any_floats(DType dtype, ReduceOp op, const Operands& operands) {
  switch (op) {
    case ReduceOp::kMin:
      return run_on(dtype, operands, FloatMin());
    case ReduceOp::kMax:
      return run_on(dtype, operands, FloatMax());
    case ReduceOp::kProduct:
      return multiply(dtype, operands);
    default:
      return run_on(dtype, operands, FloatSum());
  }
}

void divide_any_floats(DType dtype, const Operands& operands, std::uint32_t divisor) {
  run_on(dtype, operands, Quotient{static_cast<double>(divisor)});
}

const char* this_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream {

HWY_EXPORT(reduce_any_floats);
HWY_EXPORT(divide_any_floats);
HWY_EXPORT(this_target);

void reduce_floats(DType dtype, ReduceOp op, const Operands& operands) {
  HWY_DYNAMIC_DISPATCH(reduce_any_floats)(dtype, op, operands);
}

void divide_floats(DType dtype, const Operands& operands, std::uint32_t divisor) {
  HWY_DYNAMIC_DISPATCH(divide_any_floats)(dtype, operands, divisor);
}

std::string_view kernel_target() { return HWY_DYNAMIC_DISPATCH(this_target)(); }

}  // namespace slipstream
#endif
