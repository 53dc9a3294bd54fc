#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "aligned.h"

namespace slipstream::kernels {

enum class Activation : std::uint8_t {
  kNone,
  kSilu,       ///< x sigmoid(x)
  kHardSwish,  ///< x clip(x / 6 + 1 / 2, 0, 1)
  kSigmoid,
  kHardSigmoid,  ///< clip(alpha x + beta, 0, 1)
  kGelu,         ///< x (1 + erf(x / sqrt 2)) / 2
  kTanh,
  kLeakyRelu,    ///< x, or alpha x below zero
  kInverseRoot,  ///< 1 / sqrt(x)
};

enum class Number : std::uint8_t { kFloat32, kUInt8, kBFloat16 };

constexpr std::size_t size_of(Number number) {
  return number == Number::kUInt8 ? 1 : number == Number::kBFloat16 ? 2 : 4;
}

/// The last operations on a sum before it is written, for each output channel c:
///   value = activation(sum scale[c] + bias[c] [+ addend weight]) [+ addend weight]
///   written = clip(value stretch + shift, low, high), rounded to nearest if it is uint8.
/// The maker folds zeros and scales of quantised numbers into these. Without an activation, stretch
/// and shift fold into scale and bias, so they are 1 and 0.
struct Epilogue {
  Aligned<float> scale;  ///< one number per channel, zeros up to a multiple of 16
  Aligned<float> bias;
  Aligned<float> offset;  ///< used with factors (see Buffers); empty means zeros
  Activation activation = Activation::kNone;
  float alpha = 0.0F, beta = 0.0F;  ///< parameters of the activation
  bool coarse = false;  ///< the float32 output becomes bytes later: low precision suffices
  float stretch = 1.0F, shift = 0.0F;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  Number output = Number::kFloat32;
  enum class Adds : std::uint8_t { kNothing, kBefore, kAfter } adds = Adds::kNothing;
  Number addend = Number::kFloat32;  ///< float32 or the output's; any if the output is float32
  float addend_weight = 1.0F;
};

/// Addresses of all data of one run. If a run has a factor per channel, scale is the epilogue's
/// scale times the factor, and bias is the epilogue's bias times the factor, plus its offset.
struct Buffers {
  const std::uint8_t* input;
  const std::uint8_t* addend;
  std::uint8_t* output;
  const float *scale, *bias;              ///< one number per channel, zeros up to a multiple of 16
  const std::uint8_t* weights = nullptr;  ///< weights that are computed in this run
  /// Two numbers for each pixel of input bytes: real = byte ranges[0] + ranges[1]. Null means that
  /// the epilogue has the scale and zero of the bytes.
  const float* ranges = nullptr;
};

}  // namespace slipstream::kernels
