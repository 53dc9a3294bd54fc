#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "steps_text.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

HWY_INLINE float sum_of(hn::Vec<Lane> value) {
  const Lane d;
  alignas(64) float lanes[16];
  hn::Store(value, d, lanes);
  float sum = 0.0F;
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) sum += lanes[lane];
  return sum;
}

HWY_INLINE float greatest_of(hn::Vec<Lane> value) {
  const Lane d;
  alignas(64) float lanes[16];
  hn::Store(value, d, lanes);
  return *std::max_element(lanes, lanes + hn::Lanes(d));
}

/// Normalises one pixel into `row`, which has room for whole vectors.
void normalise(const float* x, std::size_t channels, float epsilon, float* row) {
  const Lane d;
  const std::size_t whole = channels / hn::Lanes(d) * hn::Lanes(d);
  const auto count = static_cast<float>(channels);
  auto sums = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += hn::Lanes(d)) sums = hn::Add(sums, hn::LoadU(d, x + i));
  float sum = sum_of(sums);
  for (std::size_t i = whole; i < channels; ++i) sum += x[i];
  const float mean = sum / count;
  auto squares = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += hn::Lanes(d)) {
    const auto away = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    squares = hn::MulAdd(away, away, squares);
  }
  float square = sum_of(squares);
  for (std::size_t i = whole; i < channels; ++i) square += (x[i] - mean) * (x[i] - mean);
  const float factor = 1.0F / std::sqrt(square / count + epsilon);
  for (std::size_t i = 0; i < channels; i += hn::Lanes(d)) {
    const auto away = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    hn::Store(hn::Mul(away, hn::Set(d, factor)), d, row + i);
  }
}

void normalise_pixel(const Epilogue& epilogue, const float* x, std::size_t channels, float epsilon,
                     float* row, std::uint8_t* to) {
  normalise(x, channels, epsilon, row);
  const std::size_t padded = (channels + 15) / 16 * 16;
  const std::uint8_t* nothing = to;  // not read, because nothing is added
  finish(epilogue, row, padded, padded, 0,
         {1, &nothing, &to, epilogue.scale.data(), epilogue.bias.data()});
}

HWY_INLINE float least_of(hn::Vec<Lane> value) { return -greatest_of(hn::Neg(value)); }

/// Writes the bytes of one pixel, and their range, which is NaN if any number is not finite.
void quantise_pixel(const float* x, std::size_t channels, std::uint8_t* to, float* range) {
  const Lane d;
  const std::size_t whole = channels / hn::Lanes(d) * hn::Lanes(d);
  auto lowest = hn::Set(d, x[0]), highest = lowest, zeros = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += hn::Lanes(d)) {
    const auto value = hn::LoadU(d, x + i);
    lowest = hn::Min(lowest, value);
    highest = hn::Max(highest, value);
    zeros = hn::MulAdd(value, hn::Zero(d), zeros);  // NaN if any number is not finite
  }
  float low = least_of(lowest), high = greatest_of(highest), zero = sum_of(zeros);
  for (std::size_t i = whole; i < channels; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    zero += x[i] * 0.0F;
  }
  const float scale = high > low ? (high - low) / 255.0F : 1.0F;
  range[0] = scale;
  range[1] = low + zero;
  const auto least = hn::Set(d, low), factor = hn::Set(d, 1.0F / scale);
  for (std::size_t i = 0; i < channels; i += hn::Lanes(d)) {
    const auto level = hn::Mul(hn::Sub(hn::LoadU(d, x + i), least), factor);
    // The numbers beyond the last channel are undefined.
    write<Number::kUInt8>(hn::Max(level, hn::Zero(d)), to + i);
  }
}

/// Computes the softmax of the first `count` numbers of a row in place; numbers after them become 0
/// up to a whole vector.
void softmax_row(float* row, std::size_t count, float scale, const float* mask) {
  const Lane d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t end = (count + lanes - 1) / lanes * lanes;
  for (std::size_t i = count; i < end; ++i) row[i] = std::numeric_limits<float>::lowest();
  auto highest = hn::Set(d, std::numeric_limits<float>::lowest());  // the sum brings in NaN
  for (std::size_t i = 0; i < end; i += lanes) {
    auto value = hn::Mul(hn::LoadU(d, row + i), hn::Set(d, scale));
    if (mask != nullptr && i + lanes <= count) value = hn::Add(value, hn::LoadU(d, mask + i));
    if (mask != nullptr && i + lanes > count) {
      alignas(64) float rest[16] = {};
      std::copy(mask + i, mask + count, rest);
      value = hn::Add(value, hn::Load(d, rest));
    }
    hn::StoreU(value, d, row + i);
    highest = hn::Max(highest, value);
  }
  const auto top = hn::Set(d, greatest_of(highest));
  auto sums = hn::Zero(d);
  for (std::size_t i = 0; i < end; i += lanes) {
    const auto value = exponential(d, hn::Sub(hn::LoadU(d, row + i), top));
    hn::StoreU(value, d, row + i);
    if (i + lanes <= count) sums = hn::Add(sums, value);
  }
  float sum = sum_of(sums);
  for (std::size_t i = count / lanes * lanes; i < count; ++i) sum += row[i];
  for (std::size_t i = 0; i < end; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), hn::Set(d, 1.0F / sum)), d, row + i);
  }
  for (std::size_t i = count; i < end; ++i) row[i] = 0.0F;
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(normalise_pixel);
HWY_EXPORT(quantise_pixel);
HWY_EXPORT(softmax_row);

namespace {

std::size_t padded(std::size_t channels) { return (channels + 15) / 16 * 16; }

void for_pixels(const Tensor& tensor, Workers& workers,
                const std::function<void(std::size_t, std::size_t, std::size_t)>& work) {
  const std::size_t parts = std::min(tensor.pixels(), workers.threads() == 1 ? 1 : std::size_t{16});
  workers.share(parts, [&](std::size_t part) {
    const std::size_t end = tensor.pixels() * (part + 1) / parts;
    for (std::size_t pixel = tensor.pixels() * part / parts; pixel < end; ++pixel) {
      const std::size_t line = pixel / tensor.columns;
      work(line / tensor.rows, line % tensor.rows, pixel % tensor.columns);
    }
  });
}

}  // namespace

Step layer_norm(const Tensor& input, const Tensor& output, float epsilon, Epilogue epilogue) {
  auto end = std::make_shared<Epilogue>(std::move(epilogue));
  return {"layer norm", [=](const Memory& memory, Workers& workers) {
            for_pixels(input, workers, [&](std::size_t batch, std::size_t row, std::size_t column) {
              thread_local Aligned<float> normal;
              normal.resize(padded(input.channels));
              const std::uint8_t* from = memory.at(input) + input.pitch.at(batch, row, column);
              HWY_DYNAMIC_DISPATCH(normalise_pixel)
              (*end, reinterpret_cast<const float*>(from), input.channels, epsilon, normal.data(),
               memory.at(output) + output.pitch.at(batch, row, column));
            });
          }};
}

Step quantise(const Tensor& input, const Tensor& output, const Tensor& ranges) {
  return {"quantise", [=](const Memory& memory, Workers& workers) {
            for_pixels(input, workers, [&](std::size_t batch, std::size_t row, std::size_t column) {
              const std::size_t pixel = (batch * input.rows + row) * input.columns + column;
              const std::uint8_t* from = memory.at(input) + input.pitch.at(batch, row, column);
              HWY_DYNAMIC_DISPATCH(quantise_pixel)
              (reinterpret_cast<const float*>(from), input.channels,
               memory.at(output) + output.pitch.at(batch, row, column),
               reinterpret_cast<float*>(memory.at(ranges)) + 2 * pixel);
            });
          }};
}

Step softmax(const Tensor& input, const Tensor& output) {
  return {"softmax", [=](const Memory& memory, Workers& workers) {
            for_pixels(input, workers, [&](std::size_t batch, std::size_t row, std::size_t column) {
              const std::uint8_t* from = memory.at(input) + input.pitch.at(batch, row, column);
              auto* to =
                  reinterpret_cast<float*>(memory.at(output) + output.pitch.at(batch, row, column));
              if (reinterpret_cast<const std::uint8_t*>(to) != from) {
                std::copy_n(reinterpret_cast<const float*>(from), input.channels, to);
              }
              HWY_DYNAMIC_DISPATCH(softmax_row)(to, input.channels, 1.0F, nullptr);
            });
          }};
}

}  // namespace slipstream::kernels
#endif
