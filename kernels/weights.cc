#include "weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weights.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "epilogue-inl.h"
#include "levels.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

/// See weights.h; of this target.
inline bool sums_pairs() {
#if HWY_TARGET == HWY_AVX3
  return level() == 0;
#else
  return HWY_TARGET == HWY_AVX2;
#endif
}

constexpr std::size_t kRows = 64;  // that are turned at once
constexpr std::size_t kLaneCount = HWY_MIN(HWY_LANES(float), 16);

/// How numbers become those of a format.
struct ToFloats {
  using Out = float;
  HWY_INLINE void operator()(hn::Vec<Lane> value, Out* to) const { hn::StoreU(value, Lane(), to); }
};
struct ToHalves {
  using Out = std::uint16_t;
  HWY_INLINE void operator()(hn::Vec<Lane> value, Out* to) const {
    hn::StoreU(halves_of(value), hn::Rebind<Out, Lane>(), to);
  }
};
struct ToBytes {
  using Out = std::int8_t;
  hn::Vec<Lane> scale;
  HWY_INLINE void operator()(hn::Vec<Lane> value, Out* to) const {
    const hn::Rebind<Out, Lane> d8;
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Div(value, scale))), d8, to);
  }
};

/// `rows` numbers of neighbouring channels, as many as a vector has, turned to [channel][row].
template <class To>
HWY_INLINE void turn(const float* from, std::ptrdiff_t step, std::size_t rows, const To& to,
                     typename To::Out* out) {
  const Lane d;
  typename To::Out block[kRows * kLaneCount];
  for (std::size_t first = 0; first < rows; first += kRows) {
    const std::size_t count = HWY_MIN(rows - first, kRows);
    for (std::size_t row = 0; row < count; ++row, from += step) {
      to(hn::LoadU(d, from), block + row * kLaneCount);
    }
    for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) {
      typename To::Out* line = out + lane * rows + first;
      for (std::size_t row = 0; row < count; ++row) line[row] = block[row * kLaneCount + lane];
    }
  }
}

/// `rows` numbers of one channel that lie one after another.
template <class To>
HWY_INLINE void copy(const float* from, std::size_t rows, const To& to, typename To::Out* out) {
  const Lane d;
  std::size_t row = 0;
  for (; row + hn::Lanes(d) <= rows; row += hn::Lanes(d)) to(hn::LoadU(d, from + row), out + row);
  alignas(64) float rest[kLaneCount] = {};
  typename To::Out end[kLaneCount];
  std::copy(from + row, from + rows, rest);
  to(hn::Load(d, rest), end);
  std::copy_n(end, rows - row, out + row);
}

/// The greatest number of each of some channels, or sum of two neighbours; see `adds_pairs`.
struct Greatest {
  hn::Vec<Lane> most, before;
  bool pairs;
  explicit Greatest(bool of_pairs)
      : most(hn::Zero(Lane())), before(hn::Zero(Lane())), pairs(of_pairs) {}
  HWY_INLINE void take(hn::Vec<Lane> value) {
    const auto size = hn::Abs(value);
    most = hn::Max(most, size);
    if (pairs) {
      most = hn::Max(most, hn::Abs(hn::Add(value, before)));
      before = value;
    }
  }
};

/// The scale of numbers whose greatest is this.
HWY_INLINE hn::Vec<Lane> scale_of(hn::Vec<Lane> greatest) {
  const Lane d;
  const auto is_some = hn::Gt(greatest, hn::Zero(d));
  return hn::IfThenElse(is_some, hn::Div(greatest, hn::Set(d, 127.0F)), hn::Set(d, 1.0F));
}

/// Calls `many(channel)` for whole vectors of neighbouring channels, `one(channel, numbers)` for
/// each of the others with its numbers one after another.
template <class Many, class One>
HWY_INLINE void for_channels(const Strided& of, const Many& many, const One& one) {
  std::size_t channel = 0;
  if (of.channel_step == 1 && of.row_step != 1) {
    for (; channel + hn::Lanes(Lane()) <= of.channels; channel += hn::Lanes(Lane())) many(channel);
  }
  std::vector<float> numbers(of.row_step == 1 ? 0 : of.rows);
  for (; channel < of.channels; ++channel) {
    const float* at = of.data + static_cast<std::ptrdiff_t>(channel) * of.channel_step;
    for (std::size_t row = 0; row < numbers.size(); ++row) {
      numbers[row] = at[static_cast<std::ptrdiff_t>(row) * of.row_step];
    }
    one(channel, numbers.empty() ? at : numbers.data());
  }
}

template <class To>
HWY_INLINE void turn_all(const Strided& of, const To& to, typename To::Out* out) {
  for_channels(
      of,
      [&](std::size_t channel)
          HWY_ATTR { turn(of.data + channel, of.row_step, of.rows, to, out + channel * of.rows); },
      [&](std::size_t channel, const float* numbers)
          HWY_ATTR { copy(numbers, of.rows, to, out + channel * of.rows); });
}

void turn_floats(const Strided& of, float* out) { turn_all(of, ToFloats(), out); }
void turn_halves(const Strided& of, std::uint16_t* out) { turn_all(of, ToHalves(), out); }

void turn_bytes(const Strided& of, std::int8_t* out, float* scales) {
  const Lane d;
  const bool pairs = sums_pairs();
  const auto of_many = [&](std::size_t channel) HWY_ATTR {
    Greatest greatest(pairs);
    const float* at = of.data + channel;
    for (std::size_t row = 0; row < of.rows; ++row, at += of.row_step) {
      greatest.take(hn::LoadU(d, at));
    }
    const auto scale = scale_of(greatest.most);
    hn::StoreU(scale, d, scales + channel);
    turn(of.data + channel, of.row_step, of.rows, ToBytes{scale}, out + channel * of.rows);
  };
  const auto of_one = [&](std::size_t channel, const float* numbers) HWY_ATTR {
    float greatest = 0, before = 0;
    for (std::size_t row = 0; row < of.rows; ++row) {
      greatest = HWY_MAX(greatest, std::abs(numbers[row]));
      if (pairs) greatest = HWY_MAX(greatest, std::abs(numbers[row] + before));
      before = numbers[row];
    }
    const auto scale = scale_of(hn::Set(d, greatest));
    scales[channel] = hn::GetLane(scale);
    copy(numbers, of.rows, ToBytes{scale}, out + channel * of.rows);
  };
  for_channels(of, of_many, of_one);
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(sums_pairs);
HWY_EXPORT(turn_floats);
HWY_EXPORT(turn_halves);
HWY_EXPORT(turn_bytes);

bool adds_pairs() { return HWY_DYNAMIC_DISPATCH(sums_pairs)(); }

void as_floats(const Strided& weights, float* out) {
  HWY_DYNAMIC_DISPATCH(turn_floats)(weights, out);
}

void as_halves(const Strided& weights, std::uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(turn_halves)(weights, out);
}

void as_bytes(const Strided& weights, std::int8_t* out, const Scales& scales) {
  HWY_DYNAMIC_DISPATCH(turn_bytes)(weights, out, scales.scale);
  for (std::size_t channel = 0; channel < weights.channels; ++channel) {
    const std::int8_t* numbers = out + channel * weights.rows;
    std::int32_t sum = 0;
    for (std::size_t row = 0; row < weights.rows; ++row) sum += numbers[row];
    scales.sums[channel] = sum;
  }
}

}  // namespace slipstream::kernels
#endif
