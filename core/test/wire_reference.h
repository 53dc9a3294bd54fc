#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "slipstream/codec.h"
#include "test/reduce_reference.h"

// The results that codec/wire.h promises, one element at a time, computed in double precision.
namespace slipstream::reference {

using Bytes = std::vector<std::uint8_t>;
using Values = std::vector<float>;

template <typename T>
void append(Bytes& bytes, T value) {
  std::array<std::uint8_t, sizeof(T)> raw;
  std::memcpy(raw.data(), &value, sizeof(T));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

inline float largest_finite(std::span<const float> block) {
  float max = 0;
  for (const float value : block) {
    if (std::isfinite(value)) max = std::max(max, std::abs(value));
  }
  return max;
}

inline bool all_finite(std::span<const float> block) {
  return std::all_of(block.begin(), block.end(), [](float value) { return std::isfinite(value); });
}

inline std::uint16_t scaled_half(float value, double scale) {
  if (!std::isfinite(value)) return Float16::of(value).bits;
  const std::uint16_t bits = Float16::of(static_cast<float>(value / scale)).bits;
  const double decoded = Float16{bits}.value() * scale;
  const bool is_too_large = std::abs(decoded) > std::numeric_limits<float>::max();
  return is_too_large ? static_cast<std::uint16_t>(bits - 1) : bits;
}

inline void encode_fp16(std::span<const float> block, Bytes& to) {
  const float max = largest_finite(block);
  const float scale = max == 0 ? 1 : std::ldexp(1.0F, std::max(std::ilogb(max) - 14, -126));
  append(to, scale);
  for (const float value : block) append(to, scaled_half(value, scale));
}

inline void encode_int8(std::span<const float> block, Bytes& to) {
  const float max = largest_finite(block);
  // Volatile, so that each result is rounded and none is fused with the next operation.
  volatile float scale = std::max(max / 127, 0x1p-126F);
  if (double{scale} * 127 > std::numeric_limits<float>::max()) scale = std::nextafter(scale, 0.0F);
  if (max == 0) scale = 0;
  const bool is_finite = all_finite(block);
  append<float>(to, is_finite ? float{scale} : std::numeric_limits<float>::quiet_NaN());
  for (const float value : block) {
    const float inverse = max == 0 ? 0 : std::min(127 / max, 0x1p+126F);
    const volatile float scaled = value * inverse;
    append(to, static_cast<std::int8_t>(is_finite ? std::nearbyint(scaled) : 0.0F));
  }
}

inline void encode_block(Codec codec, std::span<const float> block, Bytes& to) {
  switch (codec) {
    case Codec::kNone:
      return append(to, block[0]);
    case Codec::kFp16:
      return encode_fp16(block, to);
    case Codec::kBf16:
      return append(to, BFloat16::of(block[0]).bits);
    case Codec::kInt8:
      return encode_int8(block, to);
  }
}

inline Bytes encode(Codec codec, std::span<const float> values) {
  Bytes bytes;
  while (!values.empty()) {
    const std::size_t size = std::min(values.size(), codec_block(codec));
    encode_block(codec, values.first(size), bytes);
    values = values.subspan(size);
  }
  return bytes;
}

inline float decode_element(Codec codec, const std::uint8_t* from, float scale) {
  switch (codec) {
    case Codec::kNone:
      return load<float>(from);
    case Codec::kFp16:
      return Float16{load<std::uint16_t>(from)}.value() * scale;
    case Codec::kBf16:
      return BFloat16{load<std::uint16_t>(from)}.value();
    case Codec::kInt8:
      return static_cast<float>(load<std::int8_t>(from)) * scale;
  }
  return 0;
}

inline Values decode(Codec codec, const Bytes& bytes, std::size_t count) {
  const CodecTraits& traits = traits_of(codec);
  Values values;
  const std::uint8_t* from = bytes.data();
  float scale = 1;
  for (std::size_t i = 0; i < count; ++i, from += traits.element_bytes) {
    if (traits.header_bytes > 0 && i % traits.block == 0) {
      scale = load<float>(from);
      from += traits.header_bytes;
    }
    values.push_back(decode_element(codec, from, scale));
  }
  return values;
}

inline Values sum(const Values& a, const Values& b) {
  Values result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(with_the_nan(a[i] + b[i]));
  return result;
}

/// The residual after `values`, which are from + residual, have arrived as `decoded`.
inline Values lost(const Values& values, const Values& decoded, const Values& before) {
  Values result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    result.push_back(std::isfinite(decoded[i]) ? values[i] - decoded[i] : before[i]);
  }
  return result;
}

}  // namespace slipstream::reference
