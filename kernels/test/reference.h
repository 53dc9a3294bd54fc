#pragma once

#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "aligned.h"
#include "epilogue.h"
#include "gtest/gtest.h"

// Helpers of the kernels' tests: numbers in every format, a reference of the epilogue, and tests
// that run once for each SIMD target of this CPU.
namespace slipstream::kernels::reference {

using TargetMask = decltype(hwy::SupportedAndGeneratedTargets())::value_type;

/// One test per target that is compiled in and that this CPU runs.
class OnTargets : public testing::TestWithParam<TargetMask> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }

  static void use(TargetMask target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

inline std::string name_of_target(const testing::TestParamInfo<TargetMask>& info) {
  return hwy::TargetName(info.param);
}

inline constexpr Number kNumbers[] = {Number::kFloat32, Number::kUInt8, Number::kBFloat16};

inline const char* name_of(Number number) {
  return number == Number::kFloat32 ? "float32" : number == Number::kUInt8 ? "uint8" : "bfloat16";
}

inline std::size_t padded(std::size_t channels) { return (channels + 15) / 16 * 16; }

inline float read(Number number, const std::uint8_t* at) {
  if (number == Number::kUInt8) return *at;
  std::uint32_t bits = 0;
  std::memcpy(reinterpret_cast<std::uint8_t*>(&bits) + 4 - size_of(number), at, size_of(number));
  return std::bit_cast<float>(bits);
}

/// Random numbers that products can sum: about 1, or any byte.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed = 20240531) : random_(seed) {}

  std::size_t below(std::size_t end) { return random_() % end; }
  float real(float scale = 1.0F) { return scale * normal_(random_); }
  Aligned<float> reals(std::size_t count, float scale = 1.0F) {
    Aligned<float> result(count);
    for (float& value : result) value = real(scale);
    return result;
  }
  /// `count` contiguous numbers.
  Aligned<std::uint8_t> of(Number number, std::size_t count) {
    Aligned<std::uint8_t> result(count * size_of(number));
    for (std::size_t i = 0; i < count; ++i) put(number, result.data() + i * size_of(number));
    return result;
  }

 private:
  void put(Number number, std::uint8_t* at) {
    if (number == Number::kUInt8) {
      *at = static_cast<std::uint8_t>(random_());
      return;
    }
    const auto bits = std::bit_cast<std::uint32_t>(real());
    std::memcpy(at, reinterpret_cast<const std::uint8_t*>(&bits) + 4 - size_of(number),
                size_of(number));
  }

  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

inline double activate(const Epilogue& of, double x) {
  switch (of.activation) {
    case Activation::kNone:
      return x;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kHardSwish:
      return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kHardSigmoid:
      return std::clamp(static_cast<double>(of.alpha) * x + static_cast<double>(of.beta), 0.0, 1.0);
    case Activation::kGelu:
      return x * std::erfc(-x * std::sqrt(0.5)) / 2;
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kLeakyRelu:
      return x < 0 ? x * static_cast<double>(of.alpha) : x;
    case Activation::kInverseRoot:
      return 1 / std::sqrt(x);
  }
  return x;
}

/// The result of an epilogue for a sum, before it is rounded.
inline double finish(const Epilogue& of, double sum, std::size_t channel, double addend) {
  using Adds = Epilogue::Adds;
  const double more =
      of.adds == Adds::kNothing ? 0 : addend * static_cast<double>(of.addend_weight);
  double value =
      sum * static_cast<double>(of.scale[channel]) + static_cast<double>(of.bias[channel]);
  if (of.adds == Adds::kBefore) value += more;
  value = activate(of, value);
  if (of.adds == Adds::kAfter) value += more;
  if (of.activation != Activation::kNone) {
    value = value * static_cast<double>(of.stretch) + static_cast<double>(of.shift);
  }
  return std::clamp(value, static_cast<double>(of.low), static_cast<double>(of.high));
}

/// The error that a number may have if it was computed in float32 and then written.
inline double room_of(Number number, double expected, double terms = 1.0) {
  const double computed = 2e-6 * (terms + std::abs(expected));
  if (number == Number::kUInt8) return 0.5001 + computed;
  return computed + (number == Number::kBFloat16 ? std::abs(expected) / 256 : 0.0);
}

/// Activations are as precise as the format of the results; see curve.h.
inline double error_of_activation(const Epilogue& of, double expected) {
  const bool silu = of.activation == Activation::kSilu, gelu = of.activation == Activation::kGelu;
  double error = 0;
  if (of.output == Number::kUInt8 || of.coarse) error = silu ? 0.004 : gelu ? 0.002 : 0;
  if (of.output == Number::kBFloat16) error = silu ? 1.1e-4 : gelu ? 3e-5 : 0;
  if (of.coarse) error += 5e-4 * std::abs(expected);
  return static_cast<double>(of.stretch) * error;
}

/// An epilogue that only scales sums and adds a bias.
inline Epilogue plain(Numbers& numbers, std::size_t channels) {
  Epilogue epilogue;
  epilogue.scale = numbers.reals(padded(channels));
  epilogue.bias = numbers.reals(padded(channels));
  std::fill(epilogue.scale.begin() + static_cast<std::ptrdiff_t>(channels), epilogue.scale.end(),
            0.0F);
  std::fill(epilogue.bias.begin() + static_cast<std::ptrdiff_t>(channels), epilogue.bias.end(),
            0.0F);
  return epilogue;
}

}  // namespace slipstream::kernels::reference
