#include "codec/wire.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/wire.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "codec/wire_formats-inl.h"
#include "codec/wire_lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

template <class Format>
constexpr std::size_t bytes_of(std::size_t count) {
  return encoded_bytes(Format::kCodec, count);
}

/// Encodes one tile of whole vectors. It is not inlined, so that a full tile and a padded one share
/// the code.
template <class Format, class Source>
HWY_NOINLINE void encode_whole(Source source, std::size_t count, std::uint8_t* to) {
  Format::encode_tile(source, count, to);
}

/// Encodes the last tile, padded with zeros, which do not change the scale.
template <class Format>
HWY_NOINLINE void encode_padded(const float* from, float* residual, std::size_t count,
                                std::uint8_t* to) {
  float values[Format::kTile];
  float residuals[Format::kTile];
  std::uint8_t bytes[bytes_of<Format>(Format::kTile)];
  const std::size_t padded = hwy::RoundUpTo(count, hn::Lanes(Floats()));
  std::copy_n(from, count, values);
  std::fill(values + count, values + padded, 0.0F);
  if (residual == nullptr) {
    encode_whole<Format>(PlainSource{values}, padded, bytes);
  } else {
    std::copy_n(residual, count, residuals);
    std::fill(residuals + count, residuals + padded, 0.0F);
    encode_whole<Format>(ResidualSource{values, residuals}, padded, bytes);
    std::copy_n(residuals, count, residual);
  }
  std::memcpy(to, bytes, bytes_of<Format>(count));
}

template <class Format>
void encode_tiles(const float* from, float* residual, std::size_t count, std::uint8_t* to) {
  while (count > 0) {
    const std::size_t size = std::min(count, Format::kTile);
    if (size % hn::Lanes(Floats()) != 0) {
      encode_padded<Format>(from, residual, size, to);
    } else if (residual == nullptr) {
      encode_whole<Format>(PlainSource{from}, size, to);
    } else {
      encode_whole<Format>(ResidualSource{from, residual}, size, to);
    }
    from += size;
    if (residual != nullptr) residual += size;
    to += bytes_of<Format>(size);
    count -= size;
  }
}

/// Its last elements go through the same code, padded to a vector.
template <class Format, bool kAdd>
HWY_INLINE void decode_tile(const std::uint8_t* from, std::size_t count, float* to) {
  constexpr CodecTraits kTraits = traits_of(Format::kCodec);
  const auto coder = Format::coder_of(from);
  from += kTraits.header_bytes;
  const std::size_t step = hn::Lanes(Floats());
  const std::size_t tail = count % step;
  const std::size_t body = count - tail;
  decode_lanes<kAdd>(coder, from, body, to);
  if (tail == 0) return;
  std::uint8_t bytes[hn::MaxLanes(Floats()) * kTraits.element_bytes] = {};
  float values[hn::MaxLanes(Floats())] = {};
  std::memcpy(bytes, from + body * kTraits.element_bytes, tail * kTraits.element_bytes);
  std::copy_n(to + body, tail, values);
  decode_lanes<kAdd>(coder, bytes, step, values);
  std::copy_n(values, tail, to + body);
}

template <class Format, bool kAdd>
void decode_tiles(const std::uint8_t* from, std::size_t count, float* to) {
  while (count > 0) {
    const std::size_t size = std::min(count, Format::kTile);
    decode_tile<Format, kAdd>(from, size, to);
    from += bytes_of<Format>(size);
    to += size;
    count -= size;
  }
}

void encode_any(Codec codec, const float* from, float* residual, std::size_t count,
                std::uint8_t* to) {
  switch (codec) {
    case Codec::kNone:
      return encode_tiles<ExactFormat>(from, residual, count, to);
    case Codec::kFp16:
      return encode_tiles<Float16Format>(from, residual, count, to);
    case Codec::kBf16:
      return encode_tiles<BFloat16Format>(from, residual, count, to);
    case Codec::kInt8:
      return encode_tiles<Int8Format>(from, residual, count, to);
  }
}

template <bool kAdd>
void decode_as(Codec codec, const std::uint8_t* from, std::size_t count, float* to) {
  switch (codec) {
    case Codec::kNone:
      return decode_tiles<ExactFormat, kAdd>(from, count, to);
    case Codec::kFp16:
      return decode_tiles<Float16Format, kAdd>(from, count, to);
    case Codec::kBf16:
      return decode_tiles<BFloat16Format, kAdd>(from, count, to);
    case Codec::kInt8:
      return decode_tiles<Int8Format, kAdd>(from, count, to);
  }
}

void decode_any(Codec codec, const std::uint8_t* from, std::size_t count, float* to) {
  decode_as<false>(codec, from, count, to);
}

void decode_add_any(Codec codec, const std::uint8_t* from, std::size_t count, float* to) {
  decode_as<true>(codec, from, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream {

HWY_EXPORT(encode_any);
HWY_EXPORT(decode_any);
HWY_EXPORT(decode_add_any);

void encode(Codec codec, const float* from, std::size_t count, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(encode_any)
  (codec, from, nullptr, count, reinterpret_cast<std::uint8_t*>(to));
}

void encode_with_residual(Codec codec, const float* from, float* residual, std::size_t count,
                          std::byte* to) {
  HWY_DYNAMIC_DISPATCH(encode_any)
  (codec, from, residual, count, reinterpret_cast<std::uint8_t*>(to));
}

void decode(Codec codec, const std::byte* from, std::size_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(decode_any)(codec, reinterpret_cast<const std::uint8_t*>(from), count, to);
}

void decode_add(Codec codec, const std::byte* from, std::size_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(decode_add_any)
  (codec, reinterpret_cast<const std::uint8_t*>(from), count, to);
}

}  // namespace slipstream
#endif
