#include "steps.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "levels.h"
#include "reference.h"
#include "tiny.h"

namespace slipstream::kernels {
namespace {

using reference::Numbers;

constexpr std::size_t kSlack = 4096;  // as in Program

/// A tensor in its own buffer, with a border of one pixel and channels padded to 16.
struct Place {
  Tensor tensor;
  Aligned<std::uint8_t> bytes;

  Place(std::size_t buffer, Number number, std::size_t batch, std::size_t rows, std::size_t columns,
        std::size_t channels) {
    tensor = {number, buffer, 0, batch, rows, columns, channels, {}};
    tensor.pitch.pixel = static_cast<std::ptrdiff_t>(reference::padded(channels) * size_of(number));
    tensor.pitch.row = tensor.pitch.pixel * static_cast<std::ptrdiff_t>(columns + 2);
    tensor.pitch.batch = tensor.pitch.row * static_cast<std::ptrdiff_t>(rows + 2);
    tensor.offset = static_cast<std::size_t>(tensor.pitch.row + tensor.pitch.pixel);
    bytes.assign(static_cast<std::size_t>(tensor.pitch.batch) * batch + kSlack, 0xFF);
  }
  [[nodiscard]] std::uint8_t* at(std::size_t batch, std::size_t row, std::size_t column,
                                 std::size_t channel) {
    return bytes.data() + tensor.offset + tensor.pitch.at(batch, row, column) +
           channel * size_of(tensor.number);
  }
  [[nodiscard]] double value(std::size_t batch, std::size_t row, std::size_t column,
                             std::size_t channel) {
    return static_cast<double>(reference::read(tensor.number, at(batch, row, column, channel)));
  }
  void fill(Numbers& numbers) {
    each([&](auto... where) {
      const auto number = numbers.of(tensor.number, 1);
      std::copy(number.begin(), number.end(), at(where...));
    });
  }
  template <typename Work>
  void each(const Work& work) const {
    for (std::size_t batch = 0; batch < tensor.batch; ++batch) {
      for (std::size_t row = 0; row < tensor.rows; ++row) {
        for (std::size_t column = 0; column < tensor.columns; ++column) {
          for (std::size_t channel = 0; channel < tensor.channels; ++channel) {
            work(batch, row, column, channel);
          }
        }
      }
    }
  }
};

/// Runs one step on tensors in the buffers 0, 1, 2 ...
void run(const Step& step, const std::vector<Place*>& places, std::size_t threads) {
  std::vector<std::uint8_t*> buffers;
  for (Place* place : places) buffers.push_back(place->bytes.data());
  Workers workers(threads);
  step.run(Memory(buffers), workers);
}

template <typename Expected>
void expect(Place& place, double terms, const Expected& expected) {
  std::string wrong;
  place.each([&](auto... where) {
    const double right = expected(where...), actual = place.value(where...);
    const double away = std::abs(actual - right);
    if (wrong.empty() && !(away <= reference::room_of(place.tensor.number, right, terms))) {
      for (const std::size_t index : {where...}) wrong += std::to_string(index) + " ";
      wrong += "is " + std::to_string(actual) + " instead of " + std::to_string(right);
    }
  });
  EXPECT_EQ(wrong, "") << reference::name_of(place.tensor.number) << " " << place.tensor.channels;
}

class StepsTest : public reference::OnTargets {};

TEST_P(StepsTest, Copy) {
  Numbers numbers;
  for (const Number from : reference::kNumbers) {
    for (const Number to : reference::kNumbers) {
      for (const std::size_t channels : {1, 3, 16, 17, 40}) {
        Place source(0, from, 2, 3, 5, channels), target(1, to, 2, 3, 5, channels);
        source.fill(numbers);
        const bool same = from == to;
        const float scale = same ? 1.0F : to == Number::kUInt8 ? 40.0F : 0.7F;
        const float shift = same ? 0.0F : to == Number::kUInt8 ? 100.0F : -0.3F;
        Copy how{{2, 3, 5, channels}, {}, {}, scale, shift};
        for (auto* strides : {&how.from, &how.to}) {
          const Tensor& tensor = strides == &how.from ? source.tensor : target.tensor;
          *strides = {tensor.pitch.batch, tensor.pitch.row, tensor.pitch.pixel,
                      static_cast<std::ptrdiff_t>(size_of(tensor.number))};
        }
        run(copy(source.tensor, target.tensor, how), {&source, &target}, 1 + channels % 3);
        expect(target, 1, [&](auto... where) {
          const double value =
              source.value(where...) * static_cast<double>(scale) + static_cast<double>(shift);
          return to == Number::kUInt8 ? std::clamp(value, 0.0, 255.0) : value;
        });
      }
    }
  }
}

/// Copies from planes of colours to pixels, as for every image, and back; rows of any length.
TEST_P(StepsTest, CopyOfPlanes) {
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    for (std::size_t columns = 1; columns <= 40; ++columns) {
      const std::size_t rows = 3, colours = 3, plane = rows * columns, size = size_of(number);
      Aligned<std::uint8_t> planes = numbers.of(Number::kFloat32, colours * plane);
      Aligned<std::uint8_t> pixels(colours * plane * size + 1, 0xCC), back(planes.size() + 1, 0xCC);
      const Tensor source{Number::kFloat32, 0, 0, 1, 1, 1, 1, {}},
          target{number, 1, 0, 1, 1, 1, 1, {}};
      const auto wide = static_cast<std::ptrdiff_t>(columns),
                 step = static_cast<std::ptrdiff_t>(size);
      const std::vector<std::ptrdiff_t> apart{4 * wide, 4, static_cast<std::ptrdiff_t>(4 * plane)};
      const std::vector<std::ptrdiff_t> together{3 * wide * step, 3 * step, step};
      const float scale = number == Number::kUInt8 ? 20.0F : 1.0F;
      const float shift = number == Number::kUInt8 ? 128.0F : 0.0F;
      Workers workers(1 + columns % 2);
      const std::vector<std::size_t> sizes{rows, columns, colours};
      copy(source, target, {sizes, apart, together, scale, shift})
          .run(Memory({planes.data(), pixels.data()}), workers);
      copy(target, source, {sizes, together, apart, 1 / scale, -shift / scale})
          .run(Memory({back.data(), pixels.data()}), workers);
      for (std::size_t at = 0; at < colours * plane; ++at) {
        const float was = reference::read(Number::kFloat32, planes.data() + at * 4);
        const float is = reference::read(Number::kFloat32, back.data() + at * 4);
        const float room = number == Number::kFloat32 ? 0.0F
                           : number == Number::kUInt8 ? 0.6F / 20
                                                      : 0.02F;
        ASSERT_NEAR(was, is, room) << reference::name_of(number) << " " << columns << " at " << at;
      }
      EXPECT_EQ(pixels.back(), 0xCC);
      EXPECT_EQ(back.back(), 0xCC);
    }
  }
}

TEST_P(StepsTest, CopyThatRepeats) {
  Numbers numbers;
  Place source(0, Number::kFloat32, 1, 2, 3, 20), target(1, Number::kFloat32, 1, 4, 6, 20);
  source.fill(numbers);
  const Pitch &from = source.tensor.pitch, &to = target.tensor.pitch;
  const Copy how{{2, 2, 3, 2, 20},
                 {from.row, 0, from.pixel, 0, 4},
                 {2 * to.row, to.row, 2 * to.pixel, to.pixel, 4}};
  run(copy(source.tensor, target.tensor, how), {&source, &target}, 2);
  expect(target, 1,
         [&](std::size_t batch, std::size_t row, std::size_t column, std::size_t channel) {
           return source.value(batch, row / 2, column / 2, channel);
         });
}

TEST_P(StepsTest, Pooling) {
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    for (const std::size_t channels : {1, 16, 17, 40}) {
      for (const auto kind : {Pooling::kMax, Pooling::kMean}) {
        for (const bool outside : {false, true}) {
          const Window window{
              .rows = 3, .columns = 2, .row_stride = 2, .column_stride = 1, .above = 1, .left = 1};
          Place input(0, number, 2, 5, 4, channels), output(1, number, 2, 3, 5, channels);
          input.fill(numbers);
          run(pooling(input.tensor, output.tensor, window, kind, outside), {&input, &output}, 2);
          expect(output, 1,
                 [&](std::size_t batch, std::size_t row, std::size_t column, std::size_t channel) {
                   double sum = 0, most = std::numeric_limits<double>::lowest();
                   std::size_t inside = 0;
                   for (std::size_t tap = 0; tap < 6; ++tap) {
                     const std::size_t y = row * 2 + tap / 2, x = column + tap % 2;
                     if (y < 1 || y > 5 || x < 1 || x > 4) continue;
                     const double value = input.value(batch, y - 1, x - 1, channel);
                     sum += value;
                     most = std::max(most, value);
                     ++inside;
                   }
                   if (kind == Pooling::kMax) return most;
                   return sum / static_cast<double>(outside ? 6 : inside);
                 });
        }
      }
    }
  }
}

TEST_P(StepsTest, GlobalMean) {
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    for (const std::size_t channels : {1, 16, 17, 40, 100}) {
      for (const std::size_t columns : {1, 4, 7}) {
        Place input(0, number, 3, 5, columns, channels),
            output(1, Number::kFloat32, 3, 1, 1, channels);
        input.fill(numbers);
        run(global_mean(input.tensor, output.tensor, 0.5F, 3.0F), {&input, &output}, 2);
        expect(output, 200, [&](std::size_t batch, std::size_t, std::size_t, std::size_t channel) {
          double sum = 0;
          for (std::size_t pixel = 0; pixel < 5 * columns; ++pixel) {
            sum += input.value(batch, pixel / columns, pixel % columns, channel);
          }
          return 0.5 * (sum / static_cast<double>(5 * columns) - 3.0);
        });
      }
    }
  }
}

TEST_P(StepsTest, Gate) {
  Numbers numbers;
  for (const Number from : reference::kNumbers) {
    for (const Number to : reference::kNumbers) {
      for (const std::size_t channels : {1, 17, 40}) {
        Place input(0, from, 2, 3, 5, channels), output(1, to, 2, 3, 5, channels);
        Place factors(2, Number::kFloat32, 2, 1, 1, channels);
        input.fill(numbers);
        factors.fill(numbers);
        const bool bytes = to == Number::kUInt8;
        const class Gate how{-2.0F, 0.6F, bytes ? 90.0F : 0.0F, bytes ? 0.0F : -50.0F, 100.0F};
        run(gate(input.tensor, factors.tensor, output.tensor, how), {&input, &output, &factors}, 2);
        expect(output, 200,
               [&](std::size_t batch, std::size_t row, std::size_t column, std::size_t channel) {
                 const double value = (input.value(batch, row, column, channel) - 2.0) *
                                          factors.value(batch, 0, 0, channel) * 0.6 +
                                      static_cast<double>(how.shift);
                 return std::clamp(value, static_cast<double>(how.low),
                                   static_cast<double>(how.high));
               });
      }
    }
  }
}

TEST_P(StepsTest, LayerNorm) {
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    for (const std::size_t channels : {2, 3, 15, 16, 17, 40, 100, 768}) {
      Place input(0, Number::kFloat32, 2, 1, 7, channels), output(1, number, 2, 1, 7, channels);
      input.fill(numbers);
      Epilogue end = reference::plain(numbers, channels);
      end.output = number;
      if (number == Number::kUInt8) end.low = 0.0F, end.high = 255.0F;
      run(layer_norm(input.tensor, output.tensor, 1e-5F, end), {&input, &output}, 2);
      expect(output, 20,
             [&](std::size_t batch, std::size_t row, std::size_t column, std::size_t channel) {
               double mean = 0, variance = 0;
               const auto count = static_cast<double>(channels);
               for (std::size_t i = 0; i < channels; ++i)
                 mean += input.value(batch, row, column, i) / count;
               for (std::size_t i = 0; i < channels; ++i) {
                 const double away = input.value(batch, row, column, i) - mean;
                 variance += away * away / count;
               }
               const double normal =
                   (input.value(batch, row, column, channel) - mean) / std::sqrt(variance + 1e-5);
               return reference::finish(end, normal, channel, 0);
             });
    }
  }
}

/// The best target of this CPU, asked for before tests restrict the targets.
const reference::TargetMask kBest = hwy::SupportedAndGeneratedTargets().front();

TEST_P(StepsTest, ProductsOfRangesThatARunFinds) {
  if (level() > 0 && GetParam() != kBest) {
    GTEST_SKIP() << "products are those of the level, whatever the target";
  }
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    for (const auto& [columns, channels, outputs] : std::vector<std::array<std::size_t, 3>>{
             {1, 1, 1}, {7, 3, 16}, {50, 17, 33}, {49, 40, 130}, {9, 300, 64}}) {
      Place input(0, Number::kFloat32, 2, 1, columns, channels);
      Place bytes(1, Number::kUInt8, 2, 1, columns, channels);
      Place ranges(2, Number::kFloat32, 1, 1, 1, 2 * 2 * columns);
      Place output(3, number, 2, 1, columns, outputs);
      input.fill(numbers);
      for (std::size_t i = 0; i < channels; ++i) {  // all numbers are equal
        const float five = 5.0F;
        std::memcpy(input.at(1, 0, 0, i), &five, sizeof five);
      }
      Aligned<std::int8_t> weights(outputs * channels);
      for (auto& weight : weights)
        weight = static_cast<std::int8_t>(static_cast<int>(numbers.below(127)) - 63);
      Epilogue end = reference::plain(numbers, outputs);
      for (float& scale : end.scale) scale /= 64.0F;
      end.output = number;
      if (number == Number::kUInt8) end.low = 0.0F, end.high = 255.0F;
      run(quantise(input.tensor, bytes.tensor, ranges.tensor), {&input, &bytes, &ranges}, 2);
      Operands operands{bytes.tensor, output.tensor};
      operands.ranges = ranges.tensor;
      run(convolution(operands, Window(), weights.data(), end), {&input, &bytes, &ranges, &output},
          2);
      const auto real = [&](std::size_t batch, std::size_t column, std::size_t channel) {
        const std::size_t at = 2 * (batch * columns + column);
        return bytes.value(batch, 0, column, channel) * ranges.value(0, 0, 0, at) +
               ranges.value(0, 0, 0, at + 1);
      };
      input.each([&](std::size_t batch, std::size_t, std::size_t column, std::size_t channel) {
        const double step = ranges.value(0, 0, 0, 2 * (batch * columns + column));
        const double right = input.value(batch, 0, column, channel);
        ASSERT_NEAR(real(batch, column, channel), right, 0.501 * step);
      });
      EXPECT_EQ(real(1, 0, 0), 5.0);
      expect(output, 100,
             [&](std::size_t batch, std::size_t, std::size_t column, std::size_t channel) {
               double sum = 0;
               for (std::size_t i = 0; i < channels; ++i) {
                 sum += real(batch, column, i) * weights[channel * channels + i];
               }
               return reference::finish(end, sum, channel, 0);
             });
    }
  }
}

/// Sums that fit 16 bits for two bytes and perhaps not for four, which the step finds out.
TEST_P(StepsTest, ProductsOfTheGreatestBytes) {
  if (level() > 0 && GetParam() != kBest) {
    GTEST_SKIP() << "products are those of the level, whatever the target";
  }
  Numbers numbers;
  constexpr std::size_t kColumns = 7, kChannels = 40, kOutputs = 19;
  for (const int greatest : {-64, -33, -32, 32, 33, 64}) {
    for (const std::size_t turns : {2, 4, 40}) {  // length of runs of one sign
      Place input(0, Number::kUInt8, 1, 1, kColumns, kChannels);
      Place output(1, Number::kFloat32, 1, 1, kColumns, kOutputs);
      input.each([&](auto... where) { *input.at(where...) = 255; });
      Aligned<std::int8_t> weights(kOutputs * kChannels, 1);
      for (std::size_t i = 0; i < kChannels; ++i) {
        weights[17 * kChannels + i] =
            static_cast<std::int8_t>(i / turns % 2 == 0 ? greatest : -greatest);
      }
      const Epilogue end = reference::plain(numbers, kOutputs);
      run(convolution({input.tensor, output.tensor}, Window(), weights.data(), end),
          {&input, &output}, 2);
      expect(output, 1, [&](std::size_t, std::size_t, std::size_t, std::size_t channel) {
        const auto* from = weights.data() + channel * kChannels;
        return reference::finish(end, 255 * std::accumulate(from, from + kChannels, 0.0), channel,
                                 0);
      });
    }
  }
}

TEST_P(StepsTest, Softmax) {
  Numbers numbers;
  for (std::size_t channels = 1; channels <= 70; ++channels) {
    Place input(0, Number::kFloat32, 2, 1, 3, channels),
        output(1, Number::kFloat32, 2, 1, 3, channels);
    input.fill(numbers);
    run(softmax(input.tensor, output.tensor), {&input, &output}, 2);
    expect(output, 1,
           [&](std::size_t batch, std::size_t row, std::size_t column, std::size_t channel) {
             double sum = 0;
             for (std::size_t i = 0; i < channels; ++i)
               sum += std::exp(input.value(batch, row, column, i));
             return std::exp(input.value(batch, row, column, channel)) / sum;
           });
  }
}

/// NaN, also with all bits set, and infinities of both signs.
const float kNotFinite[] = {std::bit_cast<float>(0x7FC00000U), std::bit_cast<float>(0xFFFFFFFFU),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};

TEST_P(StepsTest, SoftmaxOfWhatIsNoNumber) {
  Numbers numbers;
  const TinyAsZero tiny;
  for (const float value : kNotFinite) {
    for (std::size_t channels = 2; channels <= 40; ++channels) {
      Place input(0, Number::kFloat32, 1, 1, 1, channels),
          output(1, Number::kFloat32, 1, 1, 1, channels);
      input.fill(numbers);
      *reinterpret_cast<float*>(input.at(0, 0, 0, channels / 2)) = value;
      run(softmax(input.tensor, output.tensor), {&input, &output}, 1);
      const bool is_a_share = value == -std::numeric_limits<float>::infinity();
      for (std::size_t i = 0; i < channels; ++i) {
        ASSERT_EQ(std::isnan(output.value(0, 0, 0, i)), !is_a_share) << value << " of " << channels;
      }
      if (is_a_share) {
        EXPECT_EQ(output.value(0, 0, 0, channels / 2), 0.0);
      }
    }
  }
}

TEST_P(StepsTest, ActivationsOfWhatIsNoNumber) {
  const TinyAsZero tiny;
  for (const Number number : {Number::kFloat32, Number::kBFloat16}) {
    for (int kind = 0; kind <= static_cast<int>(Activation::kInverseRoot); ++kind) {
      Place input(0, Number::kFloat32, 1, 1, 4, 16), output(1, number, 1, 1, 4, 16);
      input.each([&](std::size_t batch, std::size_t row, std::size_t column, std::size_t channel) {
        *reinterpret_cast<float*>(input.at(batch, row, column, channel)) = kNotFinite[column];
      });
      Epilogue end;
      end.scale.assign(16, 1.0F);
      end.bias.assign(16, 0.0F);
      end.activation = static_cast<Activation>(kind);
      end.alpha = 0.25F;
      end.output = number;
      const std::vector<float> one(16, 1.0F);
      run(depthwise({input.tensor, output.tensor}, Window(), one.data(), true, end),
          {&input, &output}, 1);
      for (std::size_t column = 0; column < 4; ++column) {
        const double right = reference::activate(end, static_cast<double>(kNotFinite[column]));
        const double actual = output.value(0, 0, column, 5);
        const bool same = std::isnan(right) ? std::isnan(actual)
                                            : std::abs(actual - right) < 1e-6 || actual == right;
        EXPECT_TRUE(same) << kind << " of " << kNotFinite[column] << ": " << actual << ", not "
                          << right;
      }
    }
  }
}

/// Returns softmax(q k^T scale + mask) v, computed number by number.
struct Attended {
  Place &q, &k, &v, *mask;
  std::size_t size;
  double scale;

  double operator()(std::size_t batch, std::size_t, std::size_t query, std::size_t channel) const {
    double shares = 0, sum = 0;
    const std::size_t head = channel / size * size;
    for (std::size_t key = 0; key < k.tensor.columns; ++key) {
      double score = 0;
      for (std::size_t i = head; i < head + size; ++i) {
        score += q.value(batch, 0, query, i) * k.value(batch, 0, key, i);
      }
      score *= scale;
      if (mask != nullptr) {
        score += mask->value(batch, 0, mask->tensor.columns == 1 ? 0 : query, key);
      }
      shares += std::exp(score);
      sum += std::exp(score) * v.value(batch, 0, key, channel);
    }
    return sum / shares;
  }
};

TEST_P(StepsTest, Attention) {
  if (level() > 0 && GetParam() != kBest) {
    GTEST_SKIP() << "products are those of the level, whatever the target";
  }
  Numbers numbers;
  const std::size_t heads = 3, size = 16;
  Epilogue plain;
  plain.scale.assign(size, 1.0F);
  plain.bias.assign(size, 0.0F);
  for (const Number number : {Number::kFloat32, Number::kBFloat16}) {
    for (const auto& [queries, keys] : std::vector<std::pair<std::size_t, std::size_t>>{
             {1, 1}, {7, 7}, {5, 19}, {40, 3}, {33, 64}, {2, 130}}) {
      for (const std::size_t masked : {std::size_t{0}, std::size_t{1}, queries}) {
        Place q(0, number, 2, 1, queries, heads * size), k(1, number, 2, 1, keys, heads * size);
        Place v(2, number, 2, 1, keys, heads * size),
            output(3, Number::kFloat32, 2, 1, queries, heads * size);
        Place mask(4, Number::kFloat32, 2, 1, std::max(masked, std::size_t{1}), keys);
        for (Place* place : {&q, &k, &v, &mask}) place->fill(numbers);
        const std::optional<Tensor> given = masked == 0 ? std::nullopt : std::optional(mask.tensor);
        run(attention({q.tensor, k.tensor, v.tensor, given, output.tensor, heads, 0.25F}, plain),
            {&q, &k, &v, &output, &mask}, 2);
        const double room = number == Number::kFloat32 ? 10 : 30'000;  // shares have 8 bits
        expect(output, room, Attended{q, k, v, masked == 0 ? nullptr : &mask, size, 0.25});
      }
    }
  }
}

TEST_P(StepsTest, Border) {
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    Place place(0, number, 2, 3, 4, 17);
    place.fill(numbers);
    const auto before = place.bytes;
    const auto pixel = static_cast<std::size_t>(place.tensor.pitch.pixel);
    run(border(place.tensor, 1, 1, 1, 1, 7), {&place}, 1);
    for (std::size_t at = 0; at < 2 * 5 * 6 * pixel; ++at) {
      const std::size_t row = at / pixel / 6 % 5, column = at / pixel % 6;
      const bool inside = row >= 1 && row <= 3 && column >= 1 && column <= 4;
      ASSERT_EQ(place.bytes[at], inside ? before[at] : 7) << at;
    }
    EXPECT_TRUE(std::equal(before.begin() + 2 * 5 * 6 * static_cast<std::ptrdiff_t>(pixel),
                           before.end(),
                           place.bytes.begin() + 2 * 5 * 6 * static_cast<std::ptrdiff_t>(pixel)));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, StepsTest, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         reference::name_of_target);

}  // namespace
}  // namespace slipstream::kernels
