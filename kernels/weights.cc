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

/// adds_pairs() of weights.h, for this target.
inline bool sums_pairs() {
#if HWY_TARGET == HWY_AVX3
  return level() == 0;
#else
  return HWY_TARGET == HWY_AVX2;
#endif
}

constexpr std::size_t kRows = 64;  // rows that are transposed at once
constexpr std::size_t kLaneCount = HWY_MIN(HWY_LANES(float), 16);

/// Conversions of float32 to a format.
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

/// Transposes `rows` numbers of neighbouring channels, as many as a vector has, to [channel][row].
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

/// Converts `rows` contiguous numbers of one channel.
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

/// The scale of numbers whose greatest absolute value is `greatest`.
HWY_INLINE hn::Vec<Lane> scale_of(hn::Vec<Lane> greatest) {
  const Lane d;
  const auto is_some = hn::Gt(greatest, hn::Zero(d));
  return hn::IfThenElse(is_some, hn::Div(greatest, hn::Set(d, 127.0F)), hn::Set(d, 1.0F));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
/// The greatest of `many(row)`, for whole vectors of rows, and of `one(row)` for the rest.
template <class Many, class One>
HWY_INLINE float greatest_of(std::size_t begin, std::size_t end, const Many& many, const One& one) {
  const Lane d;
  auto greatest = hn::Zero(d);
  for (; begin + hn::Lanes(d) <= end; begin += hn::Lanes(d)) {
    greatest = hn::Max(greatest, many(begin));
  }
  float found = hn::GetLane(hn::MaxOfLanes(d, greatest));
  for (; begin < end; ++begin) found = HWY_MAX(found, one(begin));
  return found;
}

/// The scale of one channel's weights if sums of two products must fit 16 bits. The greatest weight
/// becomes an integer, so that rounding weights which were rounded before gives the same bytes.
class ScaleOfPairs {
 public:
  HWY_INLINE ScaleOfPairs(const float* numbers, std::size_t rows) : numbers_(numbers), rows_(rows) {
    const Lane d;
    const auto at = [&](std::size_t row) HWY_ATTR { return hn::LoadU(d, numbers + row); };
    most_ = greatest_of(
        0, rows, [&](std::size_t row) HWY_ATTR { return hn::Abs(at(row)); },
        [&](std::size_t row) HWY_ATTR { return std::abs(numbers[row]); });
    pair_ = greatest_of(
        1, rows, [&](std::size_t row) HWY_ATTR { return hn::Abs(hn::Add(at(row), at(row - 1))); },
        [&](std::size_t row) HWY_ATTR { return std::abs(numbers[row] + numbers[row - 1]); });
    if (rows % 8 != 0) return;
    four_ = greatest_of(
        0, rows,
        [&](std::size_t row) HWY_ATTR {
          const auto above = fours(hn::Max(at(row), hn::Zero(d)));
          return hn::Max(above, hn::Neg(fours(hn::Min(at(row), hn::Zero(d)))));
        },
        [&](std::size_t row)
            HWY_ATTR { return row % 8 == 0 ? greatest_of_eight(numbers + row) : 0.0F; });
  }
  [[nodiscard]] HWY_INLINE float get() const {
    if (most_ == 0) return 1;
    for (int greatest = 127; greatest > 1; --greatest) {
      const float scale = most_ / static_cast<float>(greatest);
      if (std::max(pair_, four_) > (128 + kRoom) * scale) continue;
      if (are_whole(scale, std::min<std::size_t>(rows_, 16)) && are_whole(scale, rows_)) {
        return scale;
      }
    }
    // Rounding adds up to 1/2 to each number of a sum.
    const float greatest = std::min(127 / std::max(most_, pair_) * most_, 126 / four_ * most_);
    return most_ / std::max(std::floor(greatest + kRoom), 1.0F);
  }

 private:
  static constexpr float kRoom = 1e-4F;  // rounding errors of float32 beside an integer

  /// The sums of greatest_of_eight, each in four lanes.
  HWY_INLINE static hn::Vec<Lane> fours(hn::Vec<Lane> numbers) {
    const auto pairs = hn::Add(numbers, hn::Shuffle2301(numbers));
    return hn::Add(pairs, hn::SwapAdjacentBlocks(pairs));
  }
  [[nodiscard]] HWY_INLINE bool are_whole(float scale, std::size_t rows) const {
    const Lane d;
    const auto by = hn::Set(d, scale);
    const float away = greatest_of(
        0, rows,
        [&](std::size_t row) HWY_ATTR {
          const auto number = hn::Div(hn::LoadU(d, numbers_ + row), by);
          return hn::Abs(hn::Sub(number, hn::Round(number)));
        },
        [&](std::size_t row) HWY_ATTR {
          const float number = numbers_[row] / scale;
          return std::abs(number - std::nearbyint(number));
        });
    return away < kRoom;
  }

  const float* numbers_;
  std::size_t rows_;
  float most_ = 0, pair_ = 0, four_ = 0;
};
#endif

/// Calls `many(channel)` for whole vectors of neighbouring channels, and `one(channel, numbers)`
/// for each of the others, with its numbers in contiguous memory.
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

/// Rounds to bytes, scaled by the greatest number of each channel.
void turn_bytes(const Strided& of, std::int8_t* out, float* scales) {
  const Lane d;
  const auto of_many = [&](std::size_t channel) HWY_ATTR {
    auto greatest = hn::Zero(d);
    const float* at = of.data + channel;
    for (std::size_t row = 0; row < of.rows; ++row, at += of.row_step) {
      greatest = hn::Max(greatest, hn::Abs(hn::LoadU(d, at)));
    }
    const auto scale = scale_of(greatest);
    hn::StoreU(scale, d, scales + channel);
    turn(of.data + channel, of.row_step, of.rows, ToBytes{scale}, out + channel * of.rows);
  };
  const auto of_one = [&](std::size_t channel, const float* numbers) HWY_ATTR {
    float greatest = 0;
    for (std::size_t row = 0; row < of.rows; ++row) {
      greatest = HWY_MAX(greatest, std::abs(numbers[row]));
    }
    const auto scale = scale_of(hn::Set(d, greatest));
    scales[channel] = hn::GetLane(scale);
    copy(numbers, of.rows, ToBytes{scale}, out + channel * of.rows);
  };
  for_channels(of, of_many, of_one);
}

/// Rounds to bytes, scaled also by sums of numbers; see `adds_pairs`.
void turn_pairs(const Strided& of, std::int8_t* out, float* scales) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const Lane d;
  const auto of_one = [&](std::size_t channel, const float* numbers) HWY_ATTR {
    scales[channel] = ScaleOfPairs(numbers, of.rows).get();
    copy(numbers, of.rows, ToBytes{hn::Set(d, scales[channel])}, out + channel * of.rows);
  };
  std::vector<float> turned(of.row_step == 1 ? 0 : of.rows * hn::Lanes(d));
  const auto of_many = [&](std::size_t channel) HWY_ATTR {
    turn(of.data + channel, of.row_step, of.rows, ToFloats(), turned.data());
    for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) {
      of_one(channel + lane, turned.data() + lane * of.rows);
    }
  };
  for_channels(of, of_many, of_one);
#else
  turn_bytes(of, out, scales);  // this target adds no pairs
#endif
}

bool fit_fours(const std::int8_t* numbers, std::size_t eights) {
  float greatest = 0;
  std::size_t eight = 0;
#if HWY_TARGET == HWY_AVX2
  __m256i most = _mm256_setzero_si256();
  const __m256i ones = _mm256_set1_epi8(1), zero = _mm256_setzero_si256();
  const auto take = [&](__m256i sizes) HWY_ATTR {  // unsigned, because 128 may occur
    const __m256i pairs = _mm256_maddubs_epi16(sizes, ones);
    most = _mm256_max_epi16(most, _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0xB1)));
  };
  for (; eight + 4 <= eights; eight += 4) {
    const auto* at = reinterpret_cast<const __m256i*>(numbers + 8 * eight);
    const __m256i here = _mm256_loadu_si256(at);
    take(_mm256_max_epi8(here, zero));
    take(_mm256_sub_epi8(zero, _mm256_min_epi8(here, zero)));
  }
  alignas(32) std::int16_t found[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(found), most);
  greatest = *std::max_element(found, found + 16);
#endif
  for (; eight < eights && greatest <= 128; ++eight) {
    greatest = std::max(greatest, greatest_of_eight(numbers + 8 * eight));
  }
  return greatest <= 128;
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(sums_pairs);
HWY_EXPORT(turn_floats);
HWY_EXPORT(turn_halves);
HWY_EXPORT(turn_bytes);
HWY_EXPORT(turn_pairs);
HWY_EXPORT(fit_fours);

bool adds_pairs() { return HWY_DYNAMIC_DISPATCH(sums_pairs)(); }

bool fit_fours(const std::int8_t* numbers, std::size_t eights) {
  return HWY_DYNAMIC_DISPATCH(fit_fours)(numbers, eights);
}

void as_floats(const Strided& weights, float* out) {
  HWY_DYNAMIC_DISPATCH(turn_floats)(weights, out);
}

void as_halves(const Strided& weights, std::uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(turn_halves)(weights, out);
}

void as_bytes(const Strided& weights, std::int8_t* out, const Scales& scales) {
  if (adds_pairs()) {
    HWY_DYNAMIC_DISPATCH(turn_pairs)(weights, out, scales.scale);
  } else {
    HWY_DYNAMIC_DISPATCH(turn_bytes)(weights, out, scales.scale);
  }
  for (std::size_t channel = 0; channel < weights.channels; ++channel) {
    const std::int8_t* numbers = out + channel * weights.rows;
    std::int32_t sum = 0;
    for (std::size_t row = 0; row < weights.rows; ++row) sum += numbers[row];
    scales.sums[channel] = sum;
  }
}

}  // namespace slipstream::kernels
#endif
