#include "depthwise.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <string>

#include "reference.h"

namespace slipstream::kernels {
namespace {

using reference::Numbers;

/// A depthwise convolution of random numbers. Its input has slack, because kernels read whole
/// vectors and pixels that they do not use.
struct Case {
  Number number = Number::kFloat32;
  std::size_t batch = 1, rows = 2, columns = 5, channels = 16;
  std::size_t kernel_rows = 3, kernel_columns = 3;
  std::size_t stride = 1, dilation = 1;

  Depthwise of;
  Aligned<std::uint8_t> input, output;

  void make(Numbers& numbers) {
    of.number = number;
    of.batch = batch;
    of.rows = rows;
    of.columns = columns;
    of.channels = channels;
    of.kernel_rows = kernel_rows;
    of.kernel_columns = kernel_columns;
    const std::size_t padded = reference::padded(channels);
    const std::size_t wide = (columns - 1) * stride + (kernel_columns - 1) * dilation + 1;
    const std::size_t high = (rows - 1) * stride + (kernel_rows - 1) * dilation + 1;
    const auto pixel = static_cast<std::ptrdiff_t>(padded * size_of(number));
    const std::ptrdiff_t row = pixel * static_cast<std::ptrdiff_t>(wide);
    of.row_step = row * static_cast<std::ptrdiff_t>(dilation);
    of.column_step = pixel * static_cast<std::ptrdiff_t>(dilation);
    of.input = {row * static_cast<std::ptrdiff_t>(high), row * static_cast<std::ptrdiff_t>(stride),
                pixel * static_cast<std::ptrdiff_t>(stride)};
    constexpr std::size_t kSlackPixels = 24;
    input = numbers.of(number, padded * (wide * high * batch + kSlackPixels));
    of.weights.assign(kernel_rows * kernel_columns * padded, 0.0F);
    for (std::size_t tap = 0; tap < kernel_rows * kernel_columns; ++tap) {
      for (std::size_t channel = 0; channel < channels; ++channel) {
        of.weights[tap * padded + channel] = number == Number::kUInt8
                                                 ? static_cast<float>(numbers.below(256)) - 128.0F
                                                 : numbers.real();
      }
    }
    of.epilogue = reference::plain(numbers, channels);
    of.output.pixel = static_cast<std::ptrdiff_t>((padded + 16) * 4);
    of.output.row = of.output.pixel * static_cast<std::ptrdiff_t>(columns);
    of.output.batch = of.output.row * static_cast<std::ptrdiff_t>(rows);
    output.assign(static_cast<std::size_t>(of.output.batch) * batch, 0xCC);
  }

  void run() {
    for (std::size_t line = 0; line < of.lines(); ++line) {
      convolve(
          of,
          {input.data(), nullptr, output.data(), of.epilogue.scale.data(), of.epilogue.bias.data()},
          line, line + 1);
    }
  }

  [[nodiscard]] double sum(const std::uint8_t* from, std::size_t channel, double& terms) const {
    double total = 0;
    for (std::size_t tap = 0; tap < kernel_rows * kernel_columns; ++tap) {
      const auto row = static_cast<std::ptrdiff_t>(tap / kernel_columns);
      const auto column = static_cast<std::ptrdiff_t>(tap % kernel_columns);
      const std::uint8_t* at = from + row * of.row_step + column * of.column_step;
      const auto value =
          static_cast<double>(reference::read(number, at + channel * size_of(number)));
      const double term =
          value * static_cast<double>(of.weights[tap * reference::padded(channels) + channel]);
      total += term;
      terms += std::abs(term);
    }
    return total;
  }

  /// Returns a description of the first wrong number, or nothing.
  [[nodiscard]] std::string wrong() const {
    const std::size_t padded = reference::padded(channels);
    for (std::size_t pixel = 0; pixel < batch * rows * columns; ++pixel) {
      const std::size_t column = pixel % columns, row = pixel / columns % rows;
      const std::size_t in_batch = pixel / columns / rows;
      const std::uint8_t* from = input.data() + of.input.at(in_batch, row, column);
      const std::uint8_t* to = output.data() + of.output.at(in_batch, row, column);
      for (std::size_t channel = 0; channel < channels; ++channel) {
        double terms = 1;
        const double total = sum(from, channel, terms);
        const double expected = reference::finish(of.epilogue, total, channel, 0);
        const auto actual =
            static_cast<double>(reference::read(Number::kFloat32, to + channel * 4));
        const double factor = std::abs(static_cast<double>(of.epilogue.scale[channel])) + 1e-3;
        if (std::abs(actual - expected) > 2e-6 * (terms * factor + 1)) {
          return "pixel " + std::to_string(pixel) + " channel " + std::to_string(channel) + ": " +
                 std::to_string(actual) + " instead of " + std::to_string(expected);
        }
      }
      for (std::size_t at = padded * 4; at < static_cast<std::size_t>(of.output.pixel); ++at) {
        if (to[at] != 0xCC) return "written beyond pixel " + std::to_string(pixel);
      }
    }
    return {};
  }
};

constexpr std::size_t kChannels[] = {1, 3, 16, 17, 40, 64, 65, 100, 130};

std::string text_of(const Case& test) {
  return std::to_string(test.channels) + " channels, " + std::to_string(test.columns) +
         " columns, kernel " + std::to_string(test.kernel_columns) + ", stride " +
         std::to_string(test.stride) + ", " + reference::name_of(test.number);
}

class DepthwiseTest : public reference::OnTargets {};

TEST_P(DepthwiseTest, Windows) {
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    for (const std::size_t channels : kChannels) {
      for (const std::size_t stride : {1, 2, 3}) {
        for (const std::size_t columns : {1, 2, 3, 6, 7, 9, 12, 14}) {
          Case test{.number = number, .columns = columns, .channels = channels, .stride = stride};
          test.make(numbers);
          test.run();
          EXPECT_EQ(test.wrong(), "") << text_of(test);
        }
      }
    }
  }
}

TEST_P(DepthwiseTest, Kernels) {
  Numbers numbers;
  for (const Number number : reference::kNumbers) {
    for (std::size_t kernel = 1; kernel <= 7; ++kernel) {
      for (const std::size_t dilation : {1, 2}) {
        Case test{.number = number,
                  .batch = 2,
                  .columns = 8,
                  .channels = 40,
                  .kernel_rows = 8 - kernel,
                  .kernel_columns = kernel,
                  .dilation = dilation};
        test.make(numbers);
        test.run();
        EXPECT_EQ(test.wrong(), "") << text_of(test);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DepthwiseTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         reference::name_of_target);

/// Kernels of one to six rows.
template <class Check>
void for_kernels(std::initializer_list<std::size_t> columns,
                 std::initializer_list<std::size_t> strides, const Check& check) {
  Numbers numbers;
  for (std::size_t rows = 1; rows <= 6; ++rows) {
    for (const std::size_t wide : columns) {
      for (const std::size_t stride : strides) {
        check({.batch = 2,
               .columns = 11,
               .channels = 70,
               .kernel_rows = rows,
               .kernel_columns = wide,
               .stride = stride},
              numbers);
      }
    }
  }
}

class QuadsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_quads()) GTEST_SKIP() << "this CPU does not multiply bytes by bytes";
  }
  static void check(Case test, Numbers& numbers) {
    test.number = Number::kUInt8;
    test.make(numbers);
    test.of.quads = pack_quads(test.of, test.stride);
    test.run();
    EXPECT_EQ(test.wrong(), "") << text_of(test);
  }
};

TEST_F(QuadsTest, Windows) {
  Numbers numbers;
  for (const std::size_t channels : kChannels) {
    for (const std::size_t stride : {1, 2, 3}) {
      for (std::size_t columns = 1; columns <= 20; ++columns) {
        check({.columns = columns, .channels = channels, .stride = stride}, numbers);
      }
    }
  }
}

TEST_F(QuadsTest, Kernels) { for_kernels({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3}, check); }

TEST_F(QuadsTest, GreatestBytes) {
  Numbers numbers;
  Case test{.number = Number::kUInt8, .channels = 64, .kernel_rows = 7, .kernel_columns = 7};
  test.make(numbers);
  std::fill(test.input.begin(), test.input.end(), 255);
  std::fill(test.of.weights.begin(), test.of.weights.end(), -128.0F);
  test.of.quads = pack_quads(test.of, 1);
  test.run();
  EXPECT_EQ(test.wrong(), "");
}

class PairsTest : public testing::Test {
 protected:
  static void check(Case test, Numbers& numbers) {
    test.number = Number::kBFloat16;
    test.make(numbers);
    if (!suits_pairs(test.of)) GTEST_SKIP() << "this CPU does not multiply pairs of bfloat16";
    for (float& weight : test.of.weights) {  // numbers that bfloat16 represents exactly
      weight = std::bit_cast<float>(std::bit_cast<std::uint32_t>(weight) & 0xFFFF0000U);
    }
    test.of.pairs = pack_pairs(test.of);
    test.run();
    EXPECT_EQ(test.wrong(), "") << text_of(test);
  }
};

TEST_F(PairsTest, Windows) {
  Numbers numbers;
  for (const std::size_t channels : kChannels) {
    for (const std::size_t stride : {1, 2}) {
      for (const std::size_t columns : {1, 2, 5, 6, 7, 12, 13, 47, 48, 49, 100}) {
        check({.columns = columns, .channels = channels, .stride = stride}, numbers);
      }
    }
  }
}

TEST_F(PairsTest, Kernels) { for_kernels({3, 5}, {1, 2}, check); }

TEST_F(PairsTest, RowsBelowTheKernelDoNotCount) {
  Numbers numbers;
  Case test{.number = Number::kBFloat16, .rows = 1, .channels = 32};
  test.make(numbers);
  if (!suits_pairs(test.of)) GTEST_SKIP() << "this CPU does not multiply pairs of bfloat16";
  for (float& weight : test.of.weights) weight = 1.0F;
  const std::size_t used = 3 * static_cast<std::size_t>(test.of.row_step);
  std::fill(test.input.begin() + static_cast<std::ptrdiff_t>(used), test.input.end(), 0xFF);
  test.of.pairs = pack_pairs(test.of);
  test.run();
  EXPECT_EQ(test.wrong(), "");
}

TEST_F(PairsTest, ErrorsOfWeightsCancel) {
  Numbers numbers;
  Case test{.number = Number::kBFloat16, .channels = 32};
  test.make(numbers);
  const Aligned<std::uint8_t> packed = pack_pairs(test.of);
  for (std::size_t lane = 0; lane < 16; ++lane) {  // lanes of the first vector of each tap
    const std::size_t channel = lane / 4 * 8 + lane % 4;
    double sum = 0, expected = 0, largest = 0;
    for (std::size_t tap = 0; tap < 9; ++tap) {
      const std::size_t at = (tap / 3 / 2 * 3 + tap % 3) * 128 + lane * 4 + tap / 3 % 2 * 2;
      sum += static_cast<double>(reference::read(Number::kBFloat16, packed.data() + at));
      const auto weight = static_cast<double>(test.of.weights[tap * 32 + channel]);
      expected += weight;
      largest = std::max(largest, std::abs(weight));
    }
    EXPECT_NEAR(sum, expected, largest / 256) << "channel " << channel;
  }
}

TEST_F(PairsTest, OtherWindowsHaveNone) {
  Numbers numbers;
  for (Case test : {Case{.kernel_columns = 4}, Case{.stride = 3}, Case{.dilation = 4}}) {
    test.number = Number::kBFloat16;
    test.make(numbers);
    EXPECT_FALSE(suits_pairs(test.of)) << text_of(test);
  }
}

}  // namespace
}  // namespace slipstream::kernels
