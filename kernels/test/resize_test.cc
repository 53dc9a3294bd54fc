#include "resize.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace slipstream::kernels {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes random_picture(std::size_t rows, std::size_t columns, std::size_t channels) {
  std::mt19937 random(7);
  Bytes pixels(rows * columns * channels);
  for (auto& byte : pixels) byte = static_cast<std::uint8_t>(random());
  return pixels;
}

/// Returns the weight of pixel `at` in a result whose centre is `middle`.
double weight_of(double at, double middle, double reach) {
  return std::max(1 - std::abs(at + 0.5 - middle) / reach, 0.0);
}

/// Returns one number of the result, in double precision.
double expected_at(const Image& from, const Box& box, std::size_t rows, std::size_t columns,
                   std::size_t row, std::size_t column, std::size_t channel) {
  const double down = (box.bottom - box.top) / static_cast<double>(rows);
  const double right = (box.right - box.left) / static_cast<double>(columns);
  const double middle_row = box.top + (static_cast<double>(row) + 0.5) * down;
  const double middle_column = box.left + (static_cast<double>(column) + 0.5) * right;
  double sum = 0, whole = 0;
  for (std::size_t y = 0; y < from.rows; ++y) {
    const double a = weight_of(static_cast<double>(y), middle_row, std::max(down, 1.0));
    if (a == 0) continue;
    for (std::size_t x = 0; x < from.columns; ++x) {
      const double b = weight_of(static_cast<double>(x), middle_column, std::max(right, 1.0));
      sum += a * b * from.pixels[(y * from.columns + x) * from.channels + channel];
      whole += a * b;
    }
  }
  return sum / whole;
}

struct Case {
  std::size_t rows, columns;
  Box box;
  std::size_t to_rows, to_columns;
};

class Resize : public testing::TestWithParam<std::tuple<std::size_t, Case>> {};

TEST_P(Resize, IsTheMeanByTriangles) {
  const auto& [channels, how] = GetParam();
  const Bytes pixels = random_picture(how.rows, how.columns, channels);
  const Image from{pixels.data(), how.rows, how.columns, channels};
  Bytes found(how.to_rows * how.to_columns * channels);
  resize(from, how.box, found.data(), how.to_rows, how.to_columns);
  double worst = 0;
  for (std::size_t at = 0; at < found.size(); ++at) {
    const double expected =
        expected_at(from, how.box, how.to_rows, how.to_columns, at / channels / how.to_columns,
                    at / channels % how.to_columns, at % channels);
    worst = std::max(worst, std::abs(found[at] - expected));
  }
  EXPECT_LT(worst, 0.501);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Resize,
    testing::Combine(testing::Values(1, 3),
                     testing::Values(Case{1, 1, {0, 0, 1, 1}, 1, 1}, Case{1, 1, {0, 0, 1, 1}, 5, 3},
                                     Case{2, 3, {0, 0, 2, 3}, 7, 11},
                                     Case{17, 31, {0, 0, 17, 31}, 17, 31},
                                     Case{37, 50, {0, 0, 37, 50}, 25, 33},
                                     Case{37, 50, {3.5, 8.25, 30.75, 41.5}, 22, 22},
                                     Case{64, 200, {0, 0, 64, 200}, 5, 7},
                                     Case{100, 90, {20, 10, 80, 70}, 16, 48},
                                     Case{9, 9, {4.2, 4.2, 4.8, 4.8}, 4, 4},
                                     Case{300, 5, {0, 0, 300, 5}, 2, 40})));

TEST(Resize, KeepsAnImageThatIsNotResized) {
  const Bytes pixels = random_picture(13, 29, 3);
  Bytes found(pixels.size());
  resize({pixels.data(), 13, 29, 3}, {0, 0, 13, 29}, found.data(), 13, 29);
  EXPECT_EQ(found, pixels);
}

TEST(Resize, KeepsTheGreatestByte) {
  const Bytes pixels(47 * 61 * 3, 255);
  Bytes found(20 * 20 * 3);
  resize({pixels.data(), 47, 61, 3}, {1.3, 2.7, 46.1, 60.9}, found.data(), 20, 20);
  EXPECT_EQ(found, Bytes(20 * 20 * 3, 255));
}

}  // namespace
}  // namespace slipstream::kernels
