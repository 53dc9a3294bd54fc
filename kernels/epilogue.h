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

/// What becomes of a sum before it is written, per output channel c:
///   value = activation(sum scale[c] + bias[c] [+ addend weight]) [+ addend weight]
///   written = clip(value stretch + shift, low, high), rounded to nearest where it is uint8.
/// Whoever makes one folds zeros and scales of quantised numbers into these; without an activation
/// stretch and shift are 1 and 0, as they fold into scale and bias too.
struct Epilogue {
  Aligned<float> scale;  ///< one per channel, and zeros up to a multiple of 16
  Aligned<float> bias;
  Aligned<float> offset;  ///< with factors (see Buffers); as long as bias, or empty: zeros
  Activation activation = Activation::kNone;
  float alpha = 0.0F, beta = 0.0F;  ///< of the activation
  bool coarse = false;  ///< float32 that will be bytes: the activation need not be more exact
  float stretch = 1.0F, shift = 0.0F;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  Number output = Number::kFloat32;
  enum class Adds : std::uint8_t { kNothing, kBefore, kAfter } adds = Adds::kNothing;
  Number addend = Number::kFloat32;  ///< this, or what the output is; any if that is float32
  float addend_weight = 1.0F;
};

/// Where what one run reads and writes lies. With a factor per channel that is known only then,
/// scale is the epilogue's times it, and bias is the epilogue's times it plus its offset.
struct Buffers {
  const std::uint8_t* input;
  const std::uint8_t* addend;
  std::uint8_t* output;
  const float *scale, *bias;              ///< one per channel, and zeros up to a multiple of 16
  const std::uint8_t* weights = nullptr;  ///< of a convolution whose own are not constant
  /// Of input bytes, two for each pixel: real = byte ranges[0] + ranges[1]. Null: the epilogue
  /// knows what bytes stand for.
  const float* ranges = nullptr;
};

}  // namespace slipstream::kernels
