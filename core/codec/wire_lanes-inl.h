// This file is compiled once per SIMD target, so it has the guard that foreach_target.h toggles.
#if defined(SLIPSTREAM_CODEC_WIRE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_CODEC_WIRE_LANES_INL_H_
#undef SLIPSTREAM_CODEC_WIRE_LANES_INL_H_
#else
#define SLIPSTREAM_CODEC_WIRE_LANES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "reduce/float16-inl.h"
#include "reduce/nan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream {
namespace HWY_NAMESPACE {

/// The bits of the infinity; those of every finite magnitude are smaller.
inline constexpr std::uint32_t kInfinity = 0xFFu << 23;

template <class V>
HWY_INLINE auto is_finite(V value) {
  return hn::Lt(hn::Abs(value), as_floats(hn::Set(Words(), kInfinity)));
}

/// A source of values for codecs without error feedback.
struct PlainSource {
  const float* from;

  [[nodiscard]] HWY_INLINE hn::Vec<Floats> load(std::size_t at) const {
    return hn::LoadU(Floats(), from + at);
  }
  template <class V>
  HWY_INLINE void settle(std::size_t /*at*/, V /*value*/, V /*decoded*/) const {}
};

/// The sum of two buffers. It is computed again at each reading, because the operands are in the
/// first-level cache then; this is cheaper than storing the sum.
struct ResidualSource {
  const float* from;
  float* residual;

  [[nodiscard]] HWY_INLINE hn::Vec<Floats> load(std::size_t at) const {
    return hn::Add(hn::LoadU(Floats(), from + at), hn::LoadU(Floats(), residual + at));
  }
  template <class V>
  HWY_INLINE void settle(std::size_t at, V value, V decoded) const {
    const auto before = hn::LoadU(Floats(), residual + at);
    const auto after = hn::IfThenElse(is_finite(decoded), hn::Sub(value, decoded), before);
    hn::StoreU(after, Floats(), residual + at);
  }
};

/// Stores bytes, because encoded data need no alignment.
template <class D, class V>
HWY_INLINE void store_bytes(D /*lanes*/, V v, std::uint8_t* to) {
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, to);
}

template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D lanes, const std::uint8_t* from) {
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(lanes, hn::LoadU(bytes, from));
}

/// The loops below process whole vectors, so `count` must be a multiple of their lanes.
template <class Coder, class Source>
HWY_INLINE void encode_lanes(Coder coder, Source source, std::size_t count, std::uint8_t* to) {
  const typename Coder::Codes codes;
  constexpr std::size_t kSize = sizeof(hn::TFromD<typename Coder::Codes>);
  const std::size_t step = hn::Lanes(Floats());
  for (std::size_t at = 0; at < count; at += step) {
    const auto value = source.load(at);
    const auto encoded = coder.encode(value);
    store_bytes(codes, encoded, to + at * kSize);
    source.settle(at, value, coder.decode(encoded));
  }
}

template <bool kAdd, class Coder>
HWY_INLINE void decode_lanes(Coder coder, const std::uint8_t* from, std::size_t count, float* to) {
  const Floats floats;
  const typename Coder::Codes codes;
  constexpr std::size_t kSize = sizeof(hn::TFromD<typename Coder::Codes>);
  const std::size_t step = hn::Lanes(floats);
  for (std::size_t at = 0; at < count; at += step) {
    auto value = coder.decode(load_bytes(codes, from + at * kSize));
    if constexpr (kAdd) value = with_the_nan(floats, hn::Add(hn::LoadU(floats, to + at), value));
    hn::StoreU(value, floats, to + at);
  }
}

/// The bits of the largest |value|; a NaN is larger than an infinity. They are compared as
/// integers, because the maximum of floats treats NaN differently on different targets.
template <class Source>
HWY_INLINE std::uint32_t largest_magnitude(Source source, std::size_t count) {
  const Lanes<std::int32_t> integers;
  const std::size_t step = hn::Lanes(integers);
  auto max = hn::Zero(integers);
  for (std::size_t at = 0; at < count; at += step) {
    max = hn::Max(max, hn::BitCast(integers, hn::Abs(source.load(at))));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(integers, max)));
}

/// The bits of the largest finite |value|; 0 if there is none.
template <class Source>
HWY_INLINE std::uint32_t largest_finite_magnitude(Source source, std::size_t count) {
  const Lanes<std::int32_t> integers;
  const std::size_t step = hn::Lanes(integers);
  auto max = hn::Zero(integers);
  for (std::size_t at = 0; at < count; at += step) {
    const auto value = source.load(at);
    const auto finite = hn::IfThenElseZero(is_finite(value), hn::Abs(value));
    max = hn::Max(max, hn::BitCast(integers, finite));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(integers, max)));
}

}  // namespace HWY_NAMESPACE
}  // namespace slipstream
HWY_AFTER_NAMESPACE();

#endif
