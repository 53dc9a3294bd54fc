#include <algorithm>
#include <cmath>
#include <tuple>

#include "reference.h"
#include "steps.h"

namespace slipstream::kernels {
namespace {

constexpr std::uint8_t kUntouched = 0xA5;

using Sizes = std::tuple<std::size_t, std::size_t, std::size_t>;  // batch, rows, columns

class Normalise : public testing::TestWithParam<std::tuple<Number, std::size_t, Sizes>> {};

/// Buffers are exactly as large as their numbers, so accesses outside them are found.
TEST_P(Normalise, IsAffineForEachChannelAndTouchesNothingElse) {
  const auto& [number, channels, sizes] = GetParam();
  const auto [batch, rows, columns] = sizes;
  const std::vector<float> scale{0.9F, 0.5F, 0.25F}, shift{3.0F, -20.0F, 200.0F};
  const auto pitch_of = [&, rows = rows](std::size_t size, std::size_t pixels) {
    const auto pixel = static_cast<std::ptrdiff_t>(channels * size);
    const std::ptrdiff_t row = pixel * static_cast<std::ptrdiff_t>(pixels);
    return Pitch{row * static_cast<std::ptrdiff_t>(rows), row, pixel};
  };
  const Tensor input{Number::kUInt8, 0, 0, batch, rows, columns, channels, pitch_of(1, columns)};
  const Tensor output{number, 1,       0,        batch,
                      rows,   columns, channels, pitch_of(size_of(number), columns + 1)};
  Aligned<std::uint8_t> from(batch * rows * columns * channels);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 37 + 11);
  Aligned<std::uint8_t> to(static_cast<std::size_t>(output.pitch.batch) * batch, kUntouched);
  Workers workers(2);
  normalise(input, output, {scale.begin(), scale.begin() + static_cast<std::ptrdiff_t>(channels)},
            {shift.begin(), shift.begin() + static_cast<std::ptrdiff_t>(channels)})
      .run(Memory({from.data(), to.data()}), workers);
  for (std::size_t at = 0; at < to.size() / size_of(number); ++at) {
    const std::size_t channel = at % channels, column = at / channels % (columns + 1);
    const std::size_t line = at / channels / (columns + 1);
    const std::uint8_t* found = to.data() + at * size_of(number);
    if (column == columns) {
      EXPECT_TRUE(std::all_of(found, found + size_of(number),
                              [](std::uint8_t byte) { return byte == kUntouched; }));
      continue;
    }
    const auto byte = static_cast<float>(from[(line * columns + column) * channels + channel]);
    float expected = byte * scale[channel] + shift[channel];
    if (number == Number::kUInt8) expected = std::min(std::max(expected, 0.0F), 255.0F);
    const double room = number == Number::kFloat32 ? 1e-4
                        : number == Number::kUInt8 ? 0.501
                                                   : 0.01 + std::abs(expected) / 250;
    EXPECT_NEAR(reference::read(number, found), expected, room);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Normalise,
    testing::Combine(testing::Values(Number::kFloat32, Number::kUInt8, Number::kBFloat16),
                     testing::Values(1, 3),
                     testing::Values(Sizes{1, 1, 1}, Sizes{1, 3, 5}, Sizes{2, 4, 16},
                                     Sizes{1, 2, 33}, Sizes{3, 1, 100})));

}  // namespace
}  // namespace slipstream::kernels
