#include "convolution.h"

#include <algorithm>
#include <array>
#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convolution_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "reference.h"
#include "weights.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {
void convolve(const Convolution& of, const Buffers& buffers, std::size_t begin, std::size_t end,
              std::size_t first, std::size_t last);
}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#if HWY_TARGETS & HWY_AVX3
namespace slipstream::kernels::N_AVX3_VNNI {
void convolve(const Convolution& of, const Buffers& buffers, std::size_t begin, std::size_t end,
              std::size_t first, std::size_t last);
}  // namespace slipstream::kernels::N_AVX3_VNNI
#endif

namespace slipstream::kernels {
namespace {

HWY_EXPORT(convolve);

using reference::Numbers;
using Kernel = std::function<void(const Convolution&, const Buffers&, std::size_t, std::size_t,
                                  std::size_t, std::size_t)>;

/// A target and, for AVX3, a level: -1 is the level that convolve() chooses, 1 is that of byte
/// products.
struct Variant {
  std::string name;
  reference::TargetMask target;
  int level;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

std::vector<Variant> variants() {
  std::vector<Variant> found;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    found.push_back({hwy::TargetName(target), target, 0});
  }
#if HWY_TARGETS & HWY_AVX3
  if (__builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
    found.push_back({"AVX3_VNNI", HWY_AVX3, 1});
  }
#endif
  found.push_back({"chosen", 0, -1});
  return found;
}

/// True if the tested variant adds pairs of products of bytes in 16 bits. This CPU may have better
/// instructions, which the variant does not use.
bool in_pairs = false;

class ConvolutionTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    use(GetParam().target);
    const auto& [name, target, level] = GetParam();
    in_pairs = level == 0 ? target == HWY_AVX3 || target == HWY_AVX2 : adds_pairs();
  }
  void TearDown() override { use(0); }
  static void use(reference::TargetMask target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  static Kernel kernel() {
    if (GetParam().level < 0)
      return [](const Convolution& of, auto... rest) { convolve(of, rest...); };
#if HWY_TARGETS & HWY_AVX3
    if (GetParam().level == 1) return N_AVX3_VNNI::convolve;
#endif
    return HWY_DYNAMIC_DISPATCH(convolve);
  }
};

constexpr Operand kOperands[] = {Operand::kFloat32, Operand::kBFloat16, Operand::kInt8};

Number number_of(Operand operand) {
  return operand == Operand::kFloat32    ? Number::kFloat32
         : operand == Operand::kBFloat16 ? Number::kBFloat16
                                         : Number::kUInt8;
}

/// Returns the product of two units of four bytes.
double product(Operand operand, const std::uint8_t* unit, const std::uint8_t* weight) {
  const std::size_t size = size_of(number_of(operand));
  double sum = 0;
  for (std::size_t at = 0; at < 4; at += size) {
    const double factor =
        operand == Operand::kInt8
            ? static_cast<double>(static_cast<std::int8_t>(weight[at]))
            : static_cast<double>(reference::read(number_of(operand), weight + at));
    sum += static_cast<double>(reference::read(number_of(operand), unit + at)) * factor;
  }
  return sum;
}

/// A convolution of random numbers, whose memory is exactly the numbers that may be read.
struct Case {
  Operand operand = Operand::kFloat32;
  std::size_t batch = 1, rows = 1, columns = 1, channels = 16;
  std::vector<std::size_t> units{1};  // length of each run
  bool twos = false;                  // adds_twos of Convolution

  Convolution of;
  Aligned<std::uint8_t> input, weights, addend, output;
  std::size_t num_units = 0;

  void make(Numbers& numbers) {
    of.operand = operand;
    of.adds_twos = twos;
    of.batch = batch;
    of.rows = rows;
    of.columns = columns;
    of.channels = channels;
    // The runs are in reverse order with gaps between them, and pixels overlap.
    std::ptrdiff_t end = 0;
    for (const std::size_t count : units) end += static_cast<std::ptrdiff_t>(count * 4 + 4);
    const std::ptrdiff_t widest = end;
    for (const std::size_t count : units) {
      end -= static_cast<std::ptrdiff_t>(count * 4 + 4);
      of.runs.push_back({end, count});
      num_units += count;
    }
    of.input.pixel = 8;
    of.input.row = 8 * static_cast<std::ptrdiff_t>(columns) + 4;
    of.input.batch = of.input.row * static_cast<std::ptrdiff_t>(rows) + 12;
    const std::ptrdiff_t last = of.input.at(batch - 1, rows - 1, columns - 1) + widest - 4;
    const Number number = number_of(operand);
    input = numbers.of(number, static_cast<std::size_t>(last) / size_of(number));
    weights = numbers.of(number, channels * num_units * 4 / size_of(number));
    if (operand == Operand::kInt8 && in_pairs) {
      for (std::uint8_t& weight : weights) {
        weight = static_cast<std::uint8_t>(static_cast<std::int8_t>(weight) / (twos ? 4 : 2));
      }
    }
    of.weights =
        pack({weights.data(), static_cast<std::ptrdiff_t>(num_units * 4), 4, channels, num_units});
    of.epilogue = reference::plain(numbers, channels);
    place_output(numbers);
  }

  void place_output(Numbers& numbers) {
    const auto spread = [&](Number number) {
      Pitch pitch;
      pitch.pixel =
          static_cast<std::ptrdiff_t>((reference::padded(channels) + 16) * size_of(number));
      pitch.row = pitch.pixel * static_cast<std::ptrdiff_t>(columns);
      pitch.batch = pitch.row * static_cast<std::ptrdiff_t>(rows);
      return pitch;
    };
    of.output = spread(of.epilogue.output);
    output.assign(static_cast<std::size_t>(of.output.batch) * batch, 0xCC);
    if (of.epilogue.adds == Epilogue::Adds::kNothing) return;
    of.addend = spread(of.epilogue.addend);
    const std::size_t size = size_of(of.epilogue.addend);
    addend =
        numbers.of(of.epilogue.addend, static_cast<std::size_t>(of.addend.batch) * batch / size);
  }

  void run(const Kernel& kernel, std::size_t begin, std::size_t end, std::size_t first,
           std::size_t last) {
    kernel(of,
           {input.data(), addend.data(), output.data(), of.epilogue.scale.data(),
            of.epilogue.bias.data()},
           begin, end, first, last);
  }
  void run_all(const Kernel& kernel) {
    run(kernel, 0, of.pixels(), 0, Panels(channels, groups_at_once()).count);
  }

  [[nodiscard]] double sum(const std::uint8_t* pixel, std::size_t channel, double& terms) const {
    double total = 0;
    const std::uint8_t* weight = weights.data() + channel * num_units * 4;
    for (const Run& run : of.runs) {
      for (std::size_t unit = 0; unit < run.units; ++unit, weight += 4) {
        const double term = product(operand, pixel + run.offset + unit * 4, weight);
        total += term;
        terms += std::abs(term);
      }
    }
    return total;
  }

  /// Returns a description of the first wrong number, or nothing.
  [[nodiscard]] std::string wrong() const {
    for (std::size_t pixel = 0; pixel < of.pixels(); ++pixel) {
      const std::size_t column = pixel % columns, row = pixel / columns % rows;
      const std::size_t in_batch = pixel / columns / rows;
      const std::uint8_t* from = input.data() + of.input.at(in_batch, row, column);
      const std::uint8_t* to = output.data() + of.output.at(in_batch, row, column);
      for (std::size_t channel = 0; channel < channels; ++channel) {
        const std::string here = wrong_at(from, to, channel, of.addend.at(in_batch, row, column));
        if (!here.empty()) return "pixel " + std::to_string(pixel) + " " + here;
      }
      const std::size_t size = size_of(of.epilogue.output);
      for (std::size_t at = reference::padded(channels) * size;
           at < static_cast<std::size_t>(of.output.pixel); ++at) {
        if (to[at] != 0xCC) return "written beyond pixel " + std::to_string(pixel);
      }
    }
    return {};
  }

  [[nodiscard]] std::string wrong_at(const std::uint8_t* from, const std::uint8_t* to,
                                     std::size_t channel, std::ptrdiff_t added) const {
    const Epilogue& end = of.epilogue;
    double terms = 0;
    const double total = sum(from, channel, terms);
    double more = 0;
    if (end.adds != Epilogue::Adds::kNothing) {
      more = static_cast<double>(
          reference::read(end.addend, addend.data() + added + channel * size_of(end.addend)));
    }
    const double expected = reference::finish(end, total, channel, more);
    const auto actual =
        static_cast<double>(reference::read(end.output, to + channel * size_of(end.output)));
    const double factor = std::abs(static_cast<double>(end.scale[channel])) + 1e-3;
    const double room = reference::room_of(end.output, expected, terms * factor + 1);
    if (std::abs(actual - expected) <= room + reference::error_of_activation(end, expected)) {
      return {};
    }
    return "channel " + std::to_string(channel) + ": " + std::to_string(actual) + " instead of " +
           std::to_string(expected);
  }
};

void check(Case test, const Kernel& kernel, Numbers& numbers) {
  const auto is_even = [](std::size_t units) { return units % 2 == 0; };
  if (test.operand == Operand::kInt8 && !test.twos && std::ranges::all_of(test.units, is_even)) {
    Case again = test;
    again.twos = true;
    check(again, kernel, numbers);
  }
  test.make(numbers);
  test.run_all(kernel);
  EXPECT_EQ(test.wrong(), "") << test.channels << " channels, " << test.of.pixels() << " pixels, "
                              << test.num_units << " units, operand "
                              << static_cast<int>(test.operand);
}

TEST_P(ConvolutionTest, Channels) {
  Numbers numbers;
  for (const Operand operand : kOperands) {
    for (std::size_t channels = 1; channels <= 130; ++channels) {
      check({.operand = operand, .columns = 7, .channels = channels, .units = {3}}, kernel(),
            numbers);
    }
  }
}

TEST_P(ConvolutionTest, Rows) {
  Numbers numbers;
  for (const Operand operand : kOperands) {
    for (const std::size_t channels : {16, 32, 48, 64, 80, 96, 112, 128, 144}) {
      for (std::size_t columns = 1; columns <= 20; ++columns) {
        check({.operand = operand, .columns = columns, .channels = channels, .units = {2}},
              kernel(), numbers);
      }
    }
  }
}

TEST_P(ConvolutionTest, Units) {
  Numbers numbers;
  for (const Operand operand : kOperands) {
    for (std::size_t units = 1; units <= 40; ++units) {
      check({.operand = operand, .columns = 5, .channels = 37, .units = {units}}, kernel(),
            numbers);
      check({.operand = operand, .columns = 5, .channels = 65, .units = {units, 1, 41 - units}},
            kernel(), numbers);
      check({.operand = operand, .columns = 5, .channels = 17, .units = {units, 2, 42 - units}},
            kernel(), numbers);
    }
  }
}

TEST_P(ConvolutionTest, Images) {
  Numbers numbers;
  for (const Operand operand : kOperands) {
    for (const auto& [batch, rows, columns] : std::vector<std::array<std::size_t, 3>>{
             {1, 1, 1}, {3, 1, 1}, {1, 9, 1}, {2, 3, 5}, {2, 5, 17}}) {
      check({.operand = operand,
             .batch = batch,
             .rows = rows,
             .columns = columns,
             .channels = 40,
             .units = {2, 3}},
            kernel(), numbers);
    }
  }
}

TEST_P(ConvolutionTest, PartsOfTheWork) {
  Numbers numbers;
  for (const Operand operand : kOperands) {
    for (const std::size_t channels : {16, 65, 130, 200}) {
      Case test{.operand = operand,
                .batch = 2,
                .rows = 3,
                .columns = 11,
                .channels = channels,
                .units = {3}};
      test.make(numbers);
      const std::size_t panels = Panels(channels, groups_at_once()).count;
      for (std::size_t begin = 0; begin < test.of.pixels();) {
        const std::size_t end = std::min(begin + 1 + numbers.below(15), test.of.pixels());
        for (std::size_t panel = panels; panel-- > 0;) {
          test.run(kernel(), begin, end, panel, panel + 1);
        }
        begin = end;
      }
      EXPECT_EQ(test.wrong(), "") << channels;
    }
  }
}

/// Sums of bytes that 16-bit products or signed bytes would get wrong. If the CPU adds pairs of
/// products in 16 bits, these are the greatest sums that fit.
TEST_P(ConvolutionTest, GreatestBytes) {
  Numbers numbers;
  for (const auto& [sign, twos] : {std::pair{1, false}, {-1, false}, {1, true}, {-1, true}}) {
    Case test{.operand = Operand::kInt8, .columns = 9, .channels = 40, .units = {64}, .twos = twos};
    test.make(numbers);
    std::fill(test.input.begin(), test.input.end(), 255);
    const int most = in_pairs ? (twos ? 32 : 64) : sign > 0 ? 127 : 128;
    std::fill(test.weights.begin(), test.weights.end(), static_cast<std::uint8_t>(sign * most));
    test.of.weights = pack({test.weights.data(), 256, 4, 40, 64});
    test.run_all(kernel());
    EXPECT_EQ(test.wrong(), "");
  }
}

constexpr Activation kActivations[] = {
    Activation::kNone,        Activation::kSilu, Activation::kHardSwish, Activation::kSigmoid,
    Activation::kHardSigmoid, Activation::kGelu, Activation::kTanh,      Activation::kLeakyRelu};

/// The forms of an epilogue: with or without an addend, and the addend's format.
std::vector<std::tuple<Epilogue::Adds, Number>> additions(Number output) {
  using Adds = Epilogue::Adds;
  std::vector<std::tuple<Adds, Number>> found{{Adds::kNothing, Number::kFloat32}};
  for (const Adds adds : {Adds::kBefore, Adds::kAfter}) {
    for (const Number addend : reference::kNumbers) {
      if (addend == Number::kFloat32 || addend == output || output == Number::kFloat32) {
        found.emplace_back(adds, addend);
      }
    }
  }
  return found;
}

void finish_as(const Kernel& kernel, Operand operand, Activation activation, Number output,
               std::tuple<Epilogue::Adds, Number> addition) {
  Numbers numbers;
  Case test{.operand = operand, .columns = 13, .channels = 40, .units = {1}};
  test.make(numbers);
  Epilogue& end = test.of.epilogue;
  end.activation = activation;
  end.alpha = 0.3F;
  end.beta = 0.4F;
  std::tie(end.adds, end.addend) = addition;
  end.output = output;
  end.addend_weight = end.addend == Number::kUInt8 ? 0.01F : 0.7F;
  end.low = output == Number::kUInt8 ? 0.0F : -0.8F;
  end.high = output == Number::kUInt8 ? 200.0F : 1.7F;
  const float spread = output == Number::kUInt8 ? 30.0F : 1.0F;
  if (activation != Activation::kNone) {
    end.stretch = output == Number::kUInt8 ? 30.0F : 0.9F;
    end.shift = output == Number::kUInt8 ? 90.0F : 0.1F;
  }
  for (std::size_t channel = 0; channel < 40; ++channel) {
    if (operand == Operand::kInt8) end.scale[channel] *= 1e-4F;
    if (activation != Activation::kNone) continue;
    end.scale[channel] *= spread;
    end.bias[channel] = end.bias[channel] * spread + 2 * spread;
  }
  test.place_output(numbers);
  test.run_all(kernel);
  EXPECT_EQ(test.wrong(), "") << "activation " << static_cast<int>(activation) << " "
                              << reference::name_of(output) << " addition "
                              << static_cast<int>(end.adds) << reference::name_of(end.addend);
}

/// Results that become bytes may be wrong by a tenth of a step if 255 steps reach 200, or by 0.002.
TEST_P(ConvolutionTest, CoarseActivations) {
  Numbers numbers;
  for (const Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kTanh}) {
    for (const float spread : {0.1F, 1.0F, 40.0F}) {
      Case test{.columns = 13, .channels = 40, .units = {1}};
      test.make(numbers);
      Epilogue& end = test.of.epilogue;
      end.activation = activation;
      end.coarse = true;
      for (float& scale : end.scale) scale *= spread;
      test.place_output(numbers);
      test.run_all(kernel());
      EXPECT_EQ(test.wrong(), "") << "activation " << static_cast<int>(activation);
    }
  }
}

TEST_P(ConvolutionTest, Epilogues) {
  for (const Operand operand : {Operand::kFloat32, Operand::kInt8}) {
    for (const Activation activation : kActivations) {
      for (const Number output : reference::kNumbers) {
        for (const auto& addition : additions(output)) {
          finish_as(kernel(), operand, activation, output, addition);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ConvolutionTest, testing::ValuesIn(variants()),
                         [](const auto& variant) { return variant.param.name; });

TEST(Panels, ShareGroupsEvenly) {
  for (std::size_t channels = 1; channels <= 600; ++channels) {
    for (const std::size_t at_once : {1, 4}) {
      const Panels panels(channels, at_once);
      EXPECT_EQ(panels.begin(0), 0U);
      EXPECT_EQ(panels.begin(panels.count), (channels + 15) / 16);
      std::size_t least = at_once, most = 0;
      for (std::size_t panel = 0; panel < panels.count; ++panel) {
        const std::size_t groups = panels.begin(panel + 1) - panels.begin(panel);
        least = std::min(least, groups);
        most = std::max(most, groups);
      }
      EXPECT_GE(least, 1U);
      EXPECT_LE(most, at_once);
      EXPECT_LE(most - least, 1U) << channels;
    }
  }
}

/// Returns unit u of channel c from where pack() must have put it.
const std::uint8_t* packed_unit(const Aligned<std::uint8_t>& packed, const Matrix& matrix,
                                std::size_t channel, std::size_t unit) {
  const Panels panels(matrix.channels, groups_at_once());
  std::size_t panel = 0;
  while (panels.begin(panel + 1) * 16 <= channel) ++panel;
  const std::size_t first = panels.begin(panel) * 16;
  const std::size_t wide = panels.begin(panel + 1) * 16 - first;
  return packed.data() + (first * matrix.units + unit * wide + channel - first) * 4;
}

class PackTest : public reference::OnTargets {};

TEST_P(PackTest, EveryUnitIsInItsPanel) {
  Numbers numbers;
  for (std::size_t channels = 1; channels <= 130; ++channels) {
    const std::size_t units = 1 + channels % 7;
    const auto data = numbers.of(Number::kUInt8, channels * units * 4);
    const auto units_step = static_cast<std::ptrdiff_t>(units * 4);
    const auto channels_step = static_cast<std::ptrdiff_t>(channels * 4);
    for (const Matrix& matrix : {Matrix{data.data(), units_step, 4, channels, units},
                                 Matrix{data.data(), 4, channels_step, channels, units}}) {
      Aligned<std::uint8_t> packed(reference::padded(channels) * units * 4, 0xCC);
      pack_into(matrix, packed.data());
      EXPECT_EQ(packed, pack(matrix));
      for (std::size_t channel = 0; channel < reference::padded(channels); ++channel) {
        for (std::size_t unit = 0; unit < units; ++unit) {
          std::array<std::uint8_t, 4> expected{};
          if (channel < channels) {
            std::memcpy(expected.data(),
                        data.data() + static_cast<std::ptrdiff_t>(channel) * matrix.channel_step +
                            static_cast<std::ptrdiff_t>(unit) * matrix.unit_step,
                        4);
          }
          ASSERT_EQ(std::memcmp(packed_unit(packed, matrix, channel, unit), expected.data(), 4), 0)
              << channels << " channels, " << channel << ", unit " << unit;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PackTest, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         reference::name_of_target);

}  // namespace
}  // namespace slipstream::kernels
#endif
