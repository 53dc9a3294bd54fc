#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "aligned.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "resize.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef SLIPSTREAM_KERNELS_RESIZE_AXIS_
#define SLIPSTREAM_KERNELS_RESIZE_AXIS_

namespace slipstream::kernels {

/// The pixels of a row, or rows of an image, from which each pixel of the result is computed, and
/// their weights.
struct Axis {
  std::vector<std::size_t> first, count;
  std::size_t taps = 0;  ///< weights per pixel of the result: the largest count, padded with zeros
  Aligned<float> weights;
  std::size_t begin = 0, end = 0;  ///< range of all pixels that are used

  Axis(std::size_t size, double low, double high, std::size_t results, std::size_t multiple);
};

constexpr std::size_t kSlack = 16;  // numbers beyond a row that vectors may read and write

}  // namespace slipstream::kernels

#endif

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Four = hn::CappedTag<float, 4>;

/// Computes the weighted sum of `taps` rows of `size` bytes, kVectors vectors at a time.
template <std::size_t kVectors>
HWY_INLINE std::size_t add_rows(const std::uint8_t* from, std::size_t pitch, std::size_t size,
                                const float* weights, std::size_t taps, float* to, std::size_t at) {
  const Wide d;
  const hn::Rebind<std::uint8_t, Wide> d8;
  const hn::RebindToSigned<Wide> di;
  const std::size_t lanes = hn::Lanes(d);
  for (; at + kVectors * lanes <= size; at += kVectors * lanes) {
    hn::Vec<Wide> sums[kVectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    const std::uint8_t* row = from + at;
    for (std::size_t tap = 0; tap < taps; ++tap, row += pitch) {
      const auto weight = hn::Set(d, weights[tap]);
      for (std::size_t i = 0; i < kVectors; ++i) {
        const auto number = hn::PromoteTo(di, hn::LoadU(d8, row + i * lanes));
        sums[i] = hn::MulAdd(hn::ConvertTo(d, number), weight, sums[i]);
      }
    }
    for (std::size_t i = 0; i < kVectors; ++i) hn::StoreU(sums[i], d, to + at + i * lanes);
  }
  return at;
}

void mix_rows(const std::uint8_t* from, std::size_t pitch, std::size_t size, const float* weights,
              std::size_t taps, float* to) {
  std::size_t at = add_rows<4>(from, pitch, size, weights, taps, to, 0);
  at = add_rows<1>(from, pitch, size, weights, taps, to, at);
  for (; at < size; ++at) {
    float sum = 0;
    for (std::size_t tap = 0; tap < taps; ++tap) {
      sum += weights[tap] * static_cast<float>(from[tap * pitch + at]);
    }
    to[at] = sum;
  }
}

#if HWY_TARGET == HWY_SCALAR

template <std::size_t kChannels>
void mix_columns(const Axis& axis, const float* from, std::uint8_t* to) {
  for (std::size_t at = 0; at < axis.first.size() * kChannels; ++at) {
    const std::size_t column = at / kChannels, channel = at % kChannels;
    const float* pixel = from + kChannels * (axis.first[column] - axis.begin) + channel;
    float sum = 0.5F;
    for (std::size_t tap = 0; tap < axis.count[column]; ++tap) {
      sum += pixel[kChannels * tap] * axis.weights[column * axis.taps + tap];
    }
    to[at] = static_cast<std::uint8_t>(std::min(sum, 255.0F));
  }
}

void mix_colors(const Axis& axis, const float* from, std::uint8_t* to) {
  mix_columns<3>(axis, from, to);
}

void mix_greys(const Axis& axis, const float* from, std::uint8_t* to) {
  mix_columns<1>(axis, from, to);
}

#else

/// Computes pixels of three colours. The fourth number of a vector belongs to the next pixel, which
/// overwrites it.
void mix_colors(const Axis& axis, const float* from, std::uint8_t* to) {
  const Four d;
  const hn::Rebind<std::uint8_t, Four> d8;
  const std::size_t count = axis.first.size();
  for (std::size_t column = 0; column < count; ++column) {
    const float* at = from + 3 * (axis.first[column] - axis.begin);
    const float* weights = axis.weights.data() + column * axis.taps;
    auto even = hn::Zero(d), odd = hn::Zero(d);
    for (std::size_t tap = 0; tap < axis.taps; tap += 2, at += 6) {
      even = hn::MulAdd(hn::LoadU(d, at), hn::Set(d, weights[tap]), even);
      odd = hn::MulAdd(hn::LoadU(d, at + 3), hn::Set(d, weights[tap + 1]), odd);
    }
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Add(even, odd))), d8, to + 3 * column);
  }
}

void mix_greys(const Axis& axis, const float* from, std::uint8_t* to) {
  const Four d;
  for (std::size_t column = 0; column < axis.first.size(); ++column) {
    const float* at = from + axis.first[column] - axis.begin;
    const float* weights = axis.weights.data() + column * axis.taps;
    auto sum = hn::Zero(d);
    for (std::size_t tap = 0; tap < axis.taps; tap += 4) {
      sum = hn::MulAdd(hn::LoadU(d, at + tap), hn::LoadU(d, weights + tap), sum);
    }
    to[column] =
        static_cast<std::uint8_t>(std::min(hn::GetLane(hn::SumOfLanes(d, sum)) + 0.5F, 255.0F));
  }
}

#endif

void resize_rows(const Image& from, const Axis& down, const Axis& right, std::uint8_t* to) {
  const std::size_t size = (right.end - right.begin) * from.channels;
  const std::size_t pitch = from.columns * from.channels;
  const std::size_t bytes = right.first.size() * from.channels;
  // After the numbers of a row come zeros, which are multiplied by weights of 0.
  Aligned<float> mixed(size + from.channels * right.taps + kSlack, 0.0F);
  Aligned<std::uint8_t> line(bytes + kSlack);
  for (std::size_t row = 0; row < down.first.size(); ++row) {
    const std::uint8_t* top = from.pixels + down.first[row] * pitch + right.begin * from.channels;
    mix_rows(top, pitch, size, down.weights.data() + row * down.taps, down.count[row],
             mixed.data());
    (from.channels == 1 ? mix_greys : mix_colors)(right, mixed.data(), line.data());
    std::memcpy(to + row * bytes, line.data(), bytes);
  }
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(resize_rows);

Axis::Axis(std::size_t size, double low, double high, std::size_t results, std::size_t multiple)
    : first(results), count(results), begin(size) {
  const double scale = (high - low) / static_cast<double>(results);
  const double reach = std::max(scale, 1.0);
  const auto middle = [&](std::size_t i) { return low + (static_cast<double>(i) + 0.5) * scale; };
  for (std::size_t i = 0; i < results; ++i) {
    first[i] = static_cast<std::size_t>(std::lround(std::max(middle(i) - reach, 0.0)));
    const auto last = std::min(static_cast<std::size_t>(std::lround(middle(i) + reach)), size);
    count[i] = last - first[i];
    taps = std::max(taps, count[i]);
    begin = std::min(begin, first[i]);
    end = std::max(end, last);
  }
  taps = (taps + multiple - 1) / multiple * multiple;
  weights.assign(results * taps, 0.0F);
  std::vector<double> shares(taps);
  for (std::size_t i = 0; i < results; ++i) {
    double whole = 0;
    for (std::size_t tap = 0; tap < count[i]; ++tap) {
      const double away = std::abs(static_cast<double>(first[i] + tap) + 0.5 - middle(i)) / reach;
      shares[tap] = std::max(1.0 - away, 0.0);
      whole += shares[tap];
    }
    for (std::size_t tap = 0; tap < count[i]; ++tap) {
      weights[i * taps + tap] = static_cast<float>(shares[tap] / whole);
    }
  }
}

void resize(const Image& from, const Box& box, std::uint8_t* to, std::size_t rows,
            std::size_t columns) {
  const Axis down(from.rows, box.top, box.bottom, rows, 1);
  const Axis right(from.columns, box.left, box.right, columns, from.channels == 1 ? 4 : 2);
  HWY_DYNAMIC_DISPATCH(resize_rows)(from, down, right, to);
}

}  // namespace slipstream::kernels
#endif
