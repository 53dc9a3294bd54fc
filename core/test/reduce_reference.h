#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "slipstream/dtype.h"

namespace slipstream::reference {

/// A 16-bit float of the IEEE kind, converted by plain arithmetic on its value.
template <int kFractionBits, int kBias>
struct Half {
  std::uint16_t bits;

  static constexpr int kInfinity = 0x7FFF >> kFractionBits << kFractionBits;
  static constexpr int kMinExponent = 1 - kBias;

  [[nodiscard]] float value() const {
    const int magnitude = bits & 0x7FFF;
    const int exponent = magnitude >> kFractionBits;
    const int fraction = magnitude & ((1 << kFractionBits) - 1);
    double result = 0;
    if (magnitude > kInfinity) return std::numeric_limits<float>::quiet_NaN();
    if (magnitude == kInfinity) {
      result = std::numeric_limits<double>::infinity();
    } else if (exponent == 0) {
      result = std::ldexp(fraction, kMinExponent - kFractionBits);
    } else {
      result = std::ldexp(fraction + (1 << kFractionBits), exponent - kBias - kFractionBits);
    }
    return static_cast<float>((bits & 0x8000) != 0 ? -result : result);
  }

  static Half of(float value) {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return from(kInfinity + (1 << (kFractionBits - 1)));
    if (value == 0) return from(sign);
    if (std::isinf(value)) return from(sign | kInfinity);
    const int exponent = std::max(std::ilogb(value), kMinExponent);
    // nearbyint rounds to nearest even. If a fraction is rounded up to the next power of two, it
    // carries into the exponent, and from there into infinity; the encoding is designed for this.
    const double scaled = std::ldexp(std::abs(double{value}), kFractionBits - exponent);
    const int units = static_cast<int>(std::nearbyint(scaled));
    const int magnitude = ((exponent + kBias - 1) << kFractionBits) + units;
    return from(sign | std::min(magnitude, kInfinity));
  }

  static Half from(int bits) { return {static_cast<std::uint16_t>(bits)}; }
};

using Float16 = Half<10, 15>;
using BFloat16 = Half<7, 127>;

struct Bool {
  std::uint8_t byte;
};

template <typename T>
T with_the_nan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <typename T>
T combine_floats(ReduceOp op, T lower, T upper) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return with_the_nan(lower + upper);
  if (op == ReduceOp::kProduct) return with_the_nan(lower * upper);
  if (std::isnan(lower) || std::isnan(upper)) return std::numeric_limits<T>::quiet_NaN();
  if (op == ReduceOp::kMin) return upper < lower ? upper : lower;
  return upper > lower ? upper : lower;
}

template <typename T>
std::complex<T> combine_complex(ReduceOp op, std::complex<T> lower, std::complex<T> upper) {
  const auto [a, b] = std::array{lower.real(), lower.imag()};
  const auto [c, d] = std::array{upper.real(), upper.imag()};
  if (op != ReduceOp::kProduct) return {with_the_nan(a + c), with_the_nan(b + d)};
  // Volatile, because compilers for CPUs with fused multiply-add would skip the rounding of the
  // products.
  const volatile T ac = a * c;
  const volatile T bd = b * d;
  const volatile T ad = a * d;
  const volatile T bc = b * c;
  return {with_the_nan<T>(ac - bd), with_the_nan<T>(ad + bc)};
}

template <typename T>
T combine_integers(ReduceOp op, T lower, T upper) {
  const auto a = static_cast<std::uint64_t>(lower);
  const auto b = static_cast<std::uint64_t>(upper);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return static_cast<T>(a + b);
    case ReduceOp::kMin:
      return std::min(lower, upper);
    case ReduceOp::kMax:
      return std::max(lower, upper);
    case ReduceOp::kProduct:
      return static_cast<T>(a * b);
    case ReduceOp::kBand:
      return static_cast<T>(a & b);
    case ReduceOp::kBor:
      return static_cast<T>(a | b);
    case ReduceOp::kBxor:
      return static_cast<T>(a ^ b);
  }
  return T{};
}

inline Bool combine_bools(ReduceOp op, Bool lower, Bool upper) {
  const bool a = lower.byte != 0;
  const bool b = upper.byte != 0;
  if (op == ReduceOp::kBxor) return {static_cast<std::uint8_t>(a != b)};
  const bool is_and = op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBand;
  return {static_cast<std::uint8_t>(is_and ? a && b : a || b)};
}

template <typename T>
T combine(ReduceOp op, T lower, T upper) {
  if constexpr (std::is_integral_v<T>) {
    return combine_integers(op, lower, upper);
  } else if constexpr (std::is_floating_point_v<T>) {
    return combine_floats(op, lower, upper);
  } else if constexpr (std::is_same_v<T, Bool>) {
    return combine_bools(op, lower, upper);
  } else if constexpr (requires { lower.imag(); }) {
    return combine_complex(op, lower, upper);
  } else {
    return T::of(combine_floats(op, lower.value(), upper.value()));
  }
}

template <typename T>
T quotient(T value, std::uint32_t divisor) {
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    return value / divisor;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::int64_t{value} / std::int64_t{divisor});
  } else if constexpr (std::is_floating_point_v<T>) {
    return with_the_nan(value / static_cast<T>(divisor));
  } else if constexpr (std::is_same_v<T, Bool>) {
    return value;
  } else if constexpr (requires { value.imag(); }) {
    return {quotient(value.real(), divisor), quotient(value.imag(), divisor)};
  } else {
    return T::of(quotient(value.value(), divisor));
  }
}

/// Calls `visit` with a value of the type that stands for `dtype`.
template <class Visitor>
void with_type_of(DType dtype, Visitor visit) {
  switch (dtype) {
    case DType::kInt8:
      return visit(std::int8_t{});
    case DType::kUInt8:
      return visit(std::uint8_t{});
    case DType::kInt16:
      return visit(std::int16_t{});
    case DType::kUInt16:
      return visit(std::uint16_t{});
    case DType::kInt32:
      return visit(std::int32_t{});
    case DType::kUInt32:
      return visit(std::uint32_t{});
    case DType::kInt64:
      return visit(std::int64_t{});
    case DType::kUInt64:
      return visit(std::uint64_t{});
    case DType::kFloat16:
      return visit(Float16{});
    case DType::kBFloat16:
      return visit(BFloat16{});
    case DType::kFloat32:
      return visit(float{});
    case DType::kFloat64:
      return visit(double{});
    case DType::kComplex64:
      return visit(std::complex<float>{});
    case DType::kComplex128:
      return visit(std::complex<double>{});
    case DType::kBool:
      return visit(Bool{});
  }
}

template <typename T>
T load(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

/// The result that slipstream::reduce promises, one element at a time.
inline void reduce(DType dtype, ReduceOp op, std::uint8_t* dst, const std::uint8_t* lower,
                   const std::uint8_t* upper, std::size_t count) {
  with_type_of(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
      const T result = combine(op, load<T>(lower + i), load<T>(upper + i));
      std::memcpy(dst + i, &result, sizeof(T));
    }
  });
}

/// The result that slipstream::divide promises, one element at a time.
inline void divide(DType dtype, std::uint8_t* data, std::size_t count, std::uint32_t divisor) {
  with_type_of(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
      const T result = quotient(load<T>(data + i), divisor);
      std::memcpy(data + i, &result, sizeof(T));
    }
  });
}

}  // namespace slipstream::reference
