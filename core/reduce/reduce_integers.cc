#include "reduce/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/reduce_integers.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "hwy/highway.h"
#include "reduce/reduce_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

struct Sum {
  template <class D, class V>
  HWY_INLINE V operator()(D /*lanes*/, V lower, V upper) const {
    return hn::Add(lower, upper);
  }
};

struct Min {
  template <class D, class V>
  HWY_INLINE V operator()(D /*lanes*/, V lower, V upper) const {
    return hn::Min(lower, upper);
  }
};

struct Max {
  template <class D, class V>
  HWY_INLINE V operator()(D /*lanes*/, V lower, V upper) const {
    return hn::Max(lower, upper);
  }
};

struct Band {
  template <class D, class V>
  HWY_INLINE V operator()(D /*lanes*/, V lower, V upper) const {
    return hn::And(lower, upper);
  }
};

struct Bor {
  template <class D, class V>
  HWY_INLINE V operator()(D /*lanes*/, V lower, V upper) const {
    return hn::Or(lower, upper);
  }
};

struct Bxor {
  template <class D, class V>
  HWY_INLINE V operator()(D /*lanes*/, V lower, V upper) const {
    return hn::Xor(lower, upper);
  }
};

/// The low half of the product. No target multiplies lanes of 8 bits, and few multiply lanes of 64
/// bits.
struct Product {
  template <class D, class V>
  HWY_INLINE V operator()(D lanes, V lower, V upper) const {
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      return of_8_bits(lanes, lower, upper);
    } else if constexpr (sizeof(hn::TFromD<D>) == 8) {
      return of_64_bits(lanes, lower, upper);
    } else {
      return hn::Mul(lower, upper);
    }
  }

  template <class D, class V>
  static HWY_INLINE V of_8_bits(D lanes, V lower, V upper) {
    const Lanes<std::uint16_t> wide;
    const auto a = hn::BitCast(wide, lower);
    const auto b = hn::BitCast(wide, upper);
    const auto even = hn::And(hn::Mul(a, b), hn::Set(wide, 0x00FF));
    const auto odd = hn::Mul(hn::ShiftRight<8>(a), hn::ShiftRight<8>(b));
    return hn::BitCast(lanes, hn::Or(even, hn::ShiftLeft<8>(odd)));
  }

  template <class D, class V>
  static HWY_INLINE V of_64_bits(D lanes, V lower, V upper) {
    const Lanes<std::uint32_t> narrow;
    const auto a = hn::BitCast(narrow, lower);
    const auto b = hn::BitCast(narrow, upper);
    // Per lane: the low half holds low(a) * high(b), the high half high(a) * low(b).
    const auto crossed = hn::BitCast(lanes, hn::Mul(a, hn::Reverse2(narrow, b)));
    const auto high = hn::And(crossed, hn::Set(lanes, 0xFFFFFFFF00000000u));
    return hn::Add(hn::MulEven(a, b), hn::Add(hn::ShiftLeft<32>(crossed), high));
  }
};

/// For bool, every value except zero is true: the smaller of a byte and 1 is its truth value.
struct Both {
  template <class D, class V>
  HWY_INLINE V operator()(D bytes, V lower, V upper) const {
    return hn::Min(hn::Min(lower, upper), hn::Set(bytes, 1));
  }
};

struct Either {
  template <class D, class V>
  HWY_INLINE V operator()(D bytes, V lower, V upper) const {
    return hn::Min(hn::Or(lower, upper), hn::Set(bytes, 1));
  }
};

struct OneOnly {
  template <class D, class V>
  HWY_INLINE V operator()(D bytes, V lower, V upper) const {
    const auto one = hn::Set(bytes, 1);
    return hn::Xor(hn::Min(lower, one), hn::Min(upper, one));
  }
};

template <typename T, class Op>
void run_on(const Operands& operands) {
  run(operands, OnLanes<T, Op>{});
}

/// `U` is the unsigned type with the size of T. Sums and products wrap around and do not depend on
/// the sign; bitwise operations do not even depend on the size.
template <typename T, typename U>
void reduce_lanes(ReduceOp op, const Operands& operands) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return run_on<U, Sum>(operands);
    case ReduceOp::kMin:
      return run_on<T, Min>(operands);
    case ReduceOp::kMax:
      return run_on<T, Max>(operands);
    case ReduceOp::kProduct:
      return run_on<U, Product>(operands);
    case ReduceOp::kBand:
      return run_on<std::uint8_t, Band>(operands);
    case ReduceOp::kBor:
      return run_on<std::uint8_t, Bor>(operands);
    case ReduceOp::kBxor:
      return run_on<std::uint8_t, Bxor>(operands);
  }
}

void reduce_bools(ReduceOp op, const Operands& operands) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return run_on<std::uint8_t, Either>(operands);
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return run_on<std::uint8_t, Both>(operands);
    case ReduceOp::kBxor:
      return run_on<std::uint8_t, OneOnly>(operands);
  }
}

void reduce_any_integers(DType dtype, ReduceOp op, const Operands& operands) {
  switch (dtype) {
    case DType::kInt8:
      return reduce_lanes<std::int8_t, std::uint8_t>(op, operands);
    case DType::kUInt8:
      return reduce_lanes<std::uint8_t, std::uint8_t>(op, operands);
    case DType::kInt16:
      return reduce_lanes<std::int16_t, std::uint16_t>(op, operands);
    case DType::kUInt16:
      return reduce_lanes<std::uint16_t, std::uint16_t>(op, operands);
    case DType::kInt32:
      return reduce_lanes<std::int32_t, std::uint32_t>(op, operands);
    case DType::kUInt32:
      return reduce_lanes<std::uint32_t, std::uint32_t>(op, operands);
    case DType::kInt64:
      return reduce_lanes<std::int64_t, std::uint64_t>(op, operands);
    case DType::kUInt64:
      return reduce_lanes<std::uint64_t, std::uint64_t>(op, operands);
    default:
      return reduce_bools(op, operands);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream {

HWY_EXPORT(reduce_any_integers);

void reduce_integers(DType dtype, ReduceOp op, const Operands& operands) {
  HWY_DYNAMIC_DISPATCH(reduce_any_integers)(dtype, op, operands);
}

}  // namespace slipstream
#endif
