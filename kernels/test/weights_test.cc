#include "weights.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference.h"

namespace slipstream::kernels {
namespace {

class WeightsTest : public reference::OnTargets {};

/// A matrix of random numbers, of which every channel has another greatest, and one only zeros.
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

TEST_P(WeightsTest, Bytes) {
  for_cases([](Case& test) {
    std::vector<std::int8_t> out(test.numbers.size());
    std::vector<float> scale(test.channels);
    std::vector<std::int32_t> sums(test.channels);
    as_bytes(test.strided(), out.data(), {scale.data(), sums.data()});
    for (std::size_t channel = 0; channel < test.channels; ++channel) {
      float greatest = 0;
      for (std::size_t row = 0; row < test.rows; ++row) {
        greatest = std::max(greatest, std::abs(test.at(channel, row)));
        if (!adds_pairs() || row == 0) continue;
        greatest = std::max(greatest, std::abs(test.at(channel, row) + test.at(channel, row - 1)));
      }
      ASSERT_EQ(scale[channel], greatest > 0 ? greatest / 127 : 1.0F) << channel;
      std::int32_t sum = 0;
      for (std::size_t row = 0; row < test.rows; ++row) {
        const std::int8_t number = out[channel * test.rows + row];
        ASSERT_EQ(number, std::nearbyint(test.at(channel, row) / scale[channel])) << channel;
        sum += number;
        if (!adds_pairs() || row == 0) continue;
        ASSERT_LE(std::abs(number + out[channel * test.rows + row - 1]), 128) << channel;
      }
      ASSERT_EQ(sums[channel], sum) << channel;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, WeightsTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         reference::name_of_target);

}  // namespace
}  // namespace slipstream::kernels
