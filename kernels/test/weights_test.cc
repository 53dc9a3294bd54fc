#include "weights.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference.h"

namespace slipstream::kernels {
namespace {

class WeightsTest : public reference::OnTargets {};

/// A matrix of random numbers. Every channel has a different greatest number, and one has only
/// zeros.
struct Case {
  std::size_t channels, rows;
  bool channels_first;
  std::vector<float> numbers;

  void make() {
    numbers.resize(rows * channels);
    reference::Numbers random;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const float greatest =
          channel % 7 == 3 ? 0.0F : std::ldexp(1.0F, static_cast<int>(channel % 9));
      for (std::size_t row = 0; row < rows; ++row) at(channel, row) = random.real() * greatest;
    }
  }
  float& at(std::size_t channel, std::size_t row) {
    return numbers[channels_first ? row * channels + channel : channel * rows + row];
  }
  [[nodiscard]] Strided strided() const {
    const auto wide = static_cast<std::ptrdiff_t>(channels_first ? channels : rows);
    return {numbers.data(), channels_first ? 1 : wide, channels_first ? wide : 1, channels, rows};
  }
};

template <class Check>
void for_cases(const Check& check) {
  for (const std::size_t channels : {1, 5, 16, 33, 64}) {
    for (const std::size_t rows : {1, 2, 15, 16, 63, 64, 65, 130}) {
      for (const bool channels_first : {false, true}) {
        Case test{channels, rows, channels_first, {}};
        test.make();
        check(test);
      }
    }
  }
}

TEST_P(WeightsTest, Floats) {
  for_cases([](Case& test) {
    std::vector<float> out(test.numbers.size());
    as_floats(test.strided(), out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], test.at(i / test.rows, i % test.rows)) << i;
    }
  });
}

TEST_P(WeightsTest, Halves) {
  for_cases([](Case& test) {
    std::vector<std::uint16_t> out(test.numbers.size());
    as_halves(test.strided(), out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto expected = static_cast<double>(test.at(i / test.rows, i % test.rows));
      const double half =
          reference::read(Number::kBFloat16, reinterpret_cast<const std::uint8_t*>(out.data() + i));
      ASSERT_NEAR(half, expected, std::abs(expected) / 256) << i;
    }
  });
}

/// The scale follows from the greatest number or, if the CPU `adds_pairs`, also from sums of two
/// and four; the greatest number is an integer then.
float scale_of(Case& test, std::size_t channel) {
  float greatest = 0, pair = 0, four = 0, eight[8] = {};
  for (std::size_t row = 0; row < test.rows; ++row) {
    const float number = eight[row % 8] = test.at(channel, row);
    greatest = std::max(greatest, std::abs(number));
    if (row > 0) pair = std::max(pair, std::abs(number + test.at(channel, row - 1)));
    if (row % 8 == 7) four = std::max(four, greatest_of_eight(eight));
  }
  if (greatest == 0) return 1;
  if (!adds_pairs()) return greatest / 127;
  float whole = std::min(127.0F, 127 / std::max(greatest, pair) * greatest);
  if (test.rows % 8 == 0) whole = std::min(whole, 126 / four * greatest);
  return greatest / std::floor(whole + 1e-4F);
}

TEST_P(WeightsTest, Bytes) {
  for_cases([](Case& test) {
    std::vector<std::int8_t> out(test.numbers.size());
    std::vector<float> scale(test.channels);
    std::vector<std::int32_t> sums(test.channels);
    as_bytes(test.strided(), out.data(), {scale.data(), sums.data()});
    for (std::size_t channel = 0; channel < test.channels; ++channel) {
      if (adds_pairs() && test.rows == 2) {  // two numbers may be integers by chance
        ASSERT_LE(scale[channel], scale_of(test, channel)) << channel;
      } else {
        ASSERT_EQ(scale[channel], scale_of(test, channel)) << channel;
      }
      std::int32_t sum = 0;
      for (std::size_t row = 0; row < test.rows; ++row) {
        const std::int8_t number = out[channel * test.rows + row];
        ASSERT_EQ(number, std::nearbyint(test.at(channel, row) / scale[channel])) << channel;
        sum += number;
        if (!adds_pairs() || row == 0) continue;
        ASSERT_LE(std::abs(number + out[channel * test.rows + row - 1]), 128) << channel;
      }
      ASSERT_EQ(sums[channel], sum) << channel;
      for (std::size_t row = 0; adds_pairs() && test.rows % 8 == 0 && row < test.rows; row += 8) {
        ASSERT_LE(greatest_of_eight(out.data() + channel * test.rows + row), 128) << channel;
      }
    }
  });
}

TEST_P(WeightsTest, FoursThatFit) {
  for (const std::size_t eights : {1, 3, 4, 5, 9}) {
    for (std::size_t at = 0; at < 8 * eights; ++at) {
      std::vector<std::int8_t> numbers(8 * eights, 1);
      const std::size_t other = at ^ (at % 3 == 0 ? 1 : 4);  // a number that is added to it
      EXPECT_TRUE(fit_fours(numbers.data(), eights));
      numbers[at] = numbers[other] = 63;
      EXPECT_TRUE(fit_fours(numbers.data(), eights)) << at;
      numbers[at] = 64;
      EXPECT_FALSE(fit_fours(numbers.data(), eights)) << at;
      numbers[at] = -128;
      EXPECT_TRUE(fit_fours(numbers.data(), eights)) << at;
      numbers[other] = -1;
      EXPECT_FALSE(fit_fours(numbers.data(), eights)) << at;
      numbers[other] = 0;
      numbers[at ^ 2] = -128;  // a number of another sum
      EXPECT_TRUE(fit_fours(numbers.data(), eights)) << at;
    }
  }
}

/// Rounding bytes that were rounded before, times their scales, gives the same bytes.
TEST_P(WeightsTest, BytesAgain) {
  for_cases([](Case& test) {
    std::vector<std::int8_t> out(test.numbers.size()), again(test.numbers.size());
    std::vector<float> scale(test.channels), same(test.channels);
    std::vector<std::int32_t> sums(test.channels);
    as_bytes(test.strided(), out.data(), {scale.data(), sums.data()});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t channel = i / test.rows;
      test.at(channel, i % test.rows) = scale[channel] * static_cast<float>(out[i]);
    }
    as_bytes(test.strided(), again.data(), {same.data(), sums.data()});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t channel = i / test.rows;
      const float expected = scale[channel] * static_cast<float>(out[i]);
      const float found = same[channel] * static_cast<float>(again[i]);
      ASSERT_NEAR(found, expected, 1e-6 * std::abs(expected)) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, WeightsTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         reference::name_of_target);

}  // namespace
}  // namespace slipstream::kernels
