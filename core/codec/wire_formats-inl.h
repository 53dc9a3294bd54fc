// This file is compiled once per SIMD target, so it has the guard that foreach_target.h toggles.
#if defined(SLIPSTREAM_CODEC_WIRE_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_CODEC_WIRE_FORMATS_INL_H_
#undef SLIPSTREAM_CODEC_WIRE_FORMATS_INL_H_
#else
#define SLIPSTREAM_CODEC_WIRE_FORMATS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "codec/wire_lanes-inl.h"
#include "hwy/highway.h"
#include "reduce/float16-inl.h"
#include "reduce/nan-inl.h"
#include "slipstream/codec.h"

// A format describes how a tile of at most kTile values becomes bytes: encode_tile() writes the
// header and chooses the coder, and coder_of() reads the header. A coder has the parameters that
// the values of one tile share, and converts one vector of floats to codes and back.

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

/// The size of a tile in formats whose blocks are single elements.
inline constexpr std::size_t kFreeTile = 2048;

using Signed = Lanes<std::int32_t>;
using Codes16 = hn::Rebind<std::uint16_t, Floats>;
using Codes8 = hn::Rebind<std::int8_t, Floats>;

struct ExactCoder {
  using Codes = Floats;

  template <class V>
  HWY_INLINE hn::Vec<Codes> encode(V value) const {
    return value;
  }
  template <class V>
  HWY_INLINE hn::Vec<Floats> decode(V codes) const {
    return codes;
  }
};

struct BFloat16Coder {
  using Codes = Codes16;

  template <class V>
  HWY_INLINE hn::Vec<Codes> encode(V value) const {
    const auto bits = BFloat16::narrow(with_the_nan(Floats(), value));
    return hn::DemoteTo(Codes(), hn::BitCast(Signed(), bits));
  }
  template <class V>
  HWY_INLINE hn::Vec<Floats> decode(V codes) const {
    return BFloat16::widen(hn::PromoteTo(Words(), codes));
  }
};

#if SLIPSTREAM_NATIVE_FLOAT16

HWY_INLINE hn::Vec<Codes16> to_float16(hn::Vec<Floats> value) {
  return hn::BitCast(Codes16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, Floats>(), value));
}

HWY_INLINE hn::Vec<Floats> from_float16(hn::Vec<Codes16> codes) {
  return hn::PromoteTo(Floats(), hn::BitCast(hn::Rebind<hwy::float16_t, Floats>(), codes));
}

#else

HWY_INLINE hn::Vec<Codes16> to_float16(hn::Vec<Floats> value) {
  return hn::DemoteTo(Codes16(), hn::BitCast(Signed(), Float16::narrow(value)));
}

HWY_INLINE hn::Vec<Floats> from_float16(hn::Vec<Codes16> codes) {
  return Float16::widen(hn::PromoteTo(Words(), codes));
}

#endif

/// For tiles whose values are all finite and whose rounding cannot leave the range of float32.
struct Float16Coder {
  using Codes = Codes16;
  float scale;
  float inverse;

  template <class V>
  HWY_INLINE hn::Vec<Codes> encode(V value) const {
    return to_float16(hn::Mul(value, hn::Set(Floats(), inverse)));
  }
  template <class V>
  HWY_INLINE hn::Vec<Floats> decode(V codes) const {
    return hn::Mul(from_float16(codes), hn::Set(Floats(), scale));
  }
};

/// For all tiles. `limit` is the largest scaled float16 value that decodes to a finite value.
struct CarefulFloat16Coder {
  using Codes = Codes16;
  Float16Coder plain;
  float limit;

  template <class V>
  HWY_INLINE hn::Vec<Codes> encode(V value) const {
    const Floats floats;
    const auto scaled = hn::Mul(value, hn::Set(floats, plain.inverse));
    const auto below = hn::Min(scaled, hn::Set(floats, limit));
    const auto bounded = hn::Max(below, hn::Set(floats, -limit));
    const auto special = with_the_nan(floats, value);
    return to_float16(hn::IfThenElse(is_finite(value), bounded, special));
  }
  template <class V>
  HWY_INLINE hn::Vec<Floats> decode(V codes) const {
    return plain.decode(codes);
  }
};

/// The addition of 1.5 * 2^23 moves a number of up to 22 bits, rounded to nearest even by the float
/// unit, to the lowest bits of the sum. The result is the same on every target, unlike conversions
/// to integers.
struct Int8Coder {
  using Codes = Codes8;
  float scale;
  float inverse;

  template <class V>
  HWY_INLINE hn::Vec<Codes> encode(V value) const {
    const auto shift = hn::Set(Floats(), 12582912.0F);
    const auto scaled = hn::Mul(value, hn::Set(Floats(), inverse));
    const auto shifted = hn::BitCast(Signed(), hn::Add(scaled, shift));
    return hn::DemoteTo(Codes(), hn::Sub(shifted, hn::BitCast(Signed(), shift)));
  }
  template <class V>
  HWY_INLINE hn::Vec<Floats> decode(V codes) const {
    const auto integers = hn::PromoteTo(Signed(), codes);
    return hn::Mul(hn::ConvertTo(Floats(), integers), hn::Set(Floats(), scale));
  }
};

inline float read_scale(const std::uint8_t* from) {
  float scale;
  std::memcpy(&scale, from, sizeof(scale));
  return scale;
}

struct ExactFormat {
  static constexpr Codec kCodec = Codec::kNone;
  static constexpr std::size_t kTile = kFreeTile;

  template <class Source>
  static void encode_tile(Source source, std::size_t count, std::uint8_t* to) {
    encode_lanes(ExactCoder(), source, count, to);
  }
  static ExactCoder coder_of(const std::uint8_t* /*from*/) { return {}; }
};

struct BFloat16Format {
  static constexpr Codec kCodec = Codec::kBf16;
  static constexpr std::size_t kTile = kFreeTile;

  template <class Source>
  static void encode_tile(Source source, std::size_t count, std::uint8_t* to) {
    encode_lanes(BFloat16Coder(), source, count, to);
  }
  static BFloat16Coder coder_of(const std::uint8_t* /*from*/) { return {}; }
};

struct Float16Format {
  static constexpr Codec kCodec = Codec::kFp16;
  static constexpr std::size_t kTile = codec_block(kCodec);
  /// From 2^127 on, the next power of two is not a float.
  static constexpr std::uint32_t kLastBinade = 254u << 23;

  template <class Source>
  static void encode_tile(Source source, std::size_t count, std::uint8_t* to) {
    std::uint32_t max = largest_magnitude(source, count);
    const bool is_plain = max < kLastBinade;
    if (max >= kInfinity) max = largest_finite_magnitude(source, count);
    const Float16Coder coder = coder_for(max);
    std::memcpy(to, &coder.scale, sizeof(coder.scale));
    if (is_plain) return encode_lanes(coder, source, count, to + sizeof(coder.scale));
    const float limit = max < kLastBinade ? 32768.0F : 32752.0F;
    encode_lanes(CarefulFloat16Coder{coder, limit}, source, count, to + sizeof(coder.scale));
  }

  static Float16Coder coder_of(const std::uint8_t* from) { return {read_scale(from), 0}; }

 private:
  /// `max` is the bit pattern of a float32; for 2^n it is (127 + n) << 23.
  static Float16Coder coder_for(std::uint32_t max) {
    if (max == 0) return {1, 1};
    const std::uint32_t scale = std::max(max >> 23, 15u) - 14;
    return {std::bit_cast<float>(scale << 23), std::bit_cast<float>((254 - scale) << 23)};
  }
};

struct Int8Format {
  static constexpr Codec kCodec = Codec::kInt8;
  static constexpr std::size_t kTile = codec_block(kCodec);

  template <class Source>
  static void encode_tile(Source source, std::size_t count, std::uint8_t* to) {
    const Int8Coder coder = coder_for(largest_magnitude(source, count));
    std::memcpy(to, &coder.scale, sizeof(coder.scale));
    if (coder.scale == coder.scale) {
      encode_lanes(coder, source, count, to + sizeof(coder.scale));
    } else {
      std::memset(to + sizeof(coder.scale), 0, count);
    }
  }

  static Int8Coder coder_of(const std::uint8_t* from) { return {read_scale(from), 0}; }

 private:
  static Int8Coder coder_for(std::uint32_t max_bits) {
    // A larger scale times 127 would round to infinity.
    constexpr float kLargestScale = 0x1.020406p+121F;
    constexpr float kSmallestScale = 0x1p-126F;
    if (max_bits >= kInfinity) return {std::bit_cast<float>(0x7FC00000u), 0};
    if (max_bits == 0) return {0, 0};
    const auto max = std::bit_cast<float>(max_bits);
    return {std::clamp(max / 127, kSmallestScale, kLargestScale),
            std::min(127 / max, 1 / kSmallestScale)};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#endif
