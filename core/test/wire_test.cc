#include "codec/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reduce/targets.h"
// After targets.h, which selects the Highway targets that are compiled.
#include "hwy/targets.h"
#include "reduce/reduce.h"
#include "test/wire_reference.h"

namespace slipstream {
namespace {

using reference::Bytes;
using reference::Values;

static_assert(encoded_bytes(Codec::kNone, 5) == 20 && encoded_bytes(Codec::kBf16, 5) == 10);
static_assert(encoded_bytes(Codec::kFp16, 0) == 0 && encoded_bytes(Codec::kFp16, 1) == 6);
static_assert(encoded_bytes(Codec::kFp16, 2048) == 4100);
static_assert(encoded_bytes(Codec::kFp16, 2049) == 4106);
static_assert(encoded_bytes(Codec::kInt8, 128) == 132 && encoded_bytes(Codec::kInt8, 129) == 137);

constexpr auto kCodecs = [] {
  std::array<Codec, kNumCodecs> codecs{};
  for (std::size_t i = 0; i < kNumCodecs; ++i) codecs[i] = static_cast<Codec>(i);
  return codecs;
}();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kTiniest = std::numeric_limits<float>::denorm_min();

TEST(Codec, NamesAreParsedBack) {
  for (const Codec codec : kCodecs) EXPECT_EQ(parse_codec(name_of(codec)), codec);
  EXPECT_EQ(name_of(Codec::kInt8), "int8");
  EXPECT_EQ(parse_codec("fp12"), std::nullopt);
  EXPECT_EQ(parse_codec(""), std::nullopt);
}

enum class Kind : std::uint8_t { kGradients, kWide, kTiny, kHuge, kSpecial, kZeros };
constexpr std::array kKinds{Kind::kGradients, Kind::kWide,    Kind::kTiny,
                            Kind::kHuge,      Kind::kSpecial, Kind::kZeros};

float value_of(Kind kind, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, 1e-3F);
  std::uniform_int_distribution<int> exponent(-149, 127);
  const float fraction = std::uniform_real_distribution<float>(-2, 2)(random);
  constexpr std::array kSpecials{kInf, -kInf, kNan,      -kNan,    0.0F,      -0.0F,
                                 kMax, -kMax, 0x1p-126F, kTiniest, -kTiniest, 1.0F};
  switch (kind) {
    case Kind::kGradients:
      return normal(random);
    case Kind::kWide:
      return std::ldexp(fraction, exponent(random));
    case Kind::kTiny:
      return std::ldexp(fraction, -149 + static_cast<int>(random() % 40));
    case Kind::kHuge:
      return std::ldexp(fraction, 127 - static_cast<int>(random() % 3));
    case Kind::kSpecial:
      return random() % 64 == 0 ? kSpecials[random() % kSpecials.size()] : normal(random);
    case Kind::kZeros:
      return random() % 2 == 0 ? 0.0F : -0.0F;
  }
  return 0;
}

Values values_of(Kind kind, std::size_t count, std::mt19937_64& random) {
  Values values(count);
  for (float& value : values) value = value_of(kind, random);
  return values;
}

/// `size` bytes at `offset` bytes from an aligned address, between bytes that must not change.
class Place {
 public:
  Place(std::size_t size, std::size_t offset)
      : offset_(offset), size_(size), bytes_(offset + size + kMargin, kCanary) {}
  Place(const Bytes& content, std::size_t offset) : Place(content.size(), offset) {
    std::copy(content.begin(), content.end(), bytes_.begin() + at(offset));
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(bytes_.data() + offset_); }
  [[nodiscard]] Bytes content() const {
    return {bytes_.begin() + at(offset_), bytes_.begin() + at(offset_ + size_)};
  }
  [[nodiscard]] bool is_intact() const {
    const auto untouched = [](std::uint8_t byte) { return byte == kCanary; };
    return std::all_of(bytes_.begin(), bytes_.begin() + at(offset_), untouched) &&
           std::all_of(bytes_.begin() + at(offset_ + size_), bytes_.end(), untouched);
  }

 private:
  static constexpr std::uint8_t kCanary = 0xA5;
  static constexpr std::size_t kMargin = 64;
  static std::ptrdiff_t at(std::size_t index) { return static_cast<std::ptrdiff_t>(index); }
  std::size_t offset_;
  std::size_t size_;
  Bytes bytes_;
};

/// The same for floats, at an address that has only the alignment of a float.
class FloatPlace {
 public:
  explicit FloatPlace(const Values& content) : values_(content.size() + 2, kCanary) {
    std::copy(content.begin(), content.end(), values_.begin() + 1);
  }
  float* data() { return values_.data() + 1; }
  [[nodiscard]] Values content() const { return {values_.begin() + 1, values_.end() - 1}; }
  [[nodiscard]] bool is_intact() const {
    return values_.front() == kCanary && values_.back() == kCanary;
  }

 private:
  static constexpr float kCanary = 12345;
  Values values_;
};

testing::AssertionResult same_bits(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(actual[i]);
    if (bits == std::bit_cast<std::uint32_t>(expected[i])) continue;
    return testing::AssertionFailure() << "element " << i << " is " << actual[i] << " (0x"
                                       << std::hex << bits << "), expected " << expected[i];
  }
  return testing::AssertionSuccess();
}

Values decoded(Codec codec, const Bytes& bytes, std::size_t count) {
  Values values(count);
  decode(codec, reinterpret_cast<const std::byte*>(bytes.data()), count, values.data());
  return values;
}

Bytes encoded(Codec codec, const Values& values) {
  Bytes bytes(encoded_bytes(codec, values.size()));
  encode(codec, values.data(), values.size(), reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

Values round_trip(Codec codec, const Values& values) {
  return decoded(codec, encoded(codec, values), values.size());
}

using TargetMask = decltype(hwy::SupportedAndGeneratedTargets())::value_type;

/// One test per target that is compiled and that this CPU supports.
class Wire : public testing::TestWithParam<TargetMask> {
 protected:
  void SetUp() override {
    use(GetParam());
    ASSERT_EQ(simd_target(), hwy::TargetName(GetParam()));
  }
  void TearDown() override { use(0); }

  static void use(TargetMask target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }

  std::mt19937_64 random_{20240601};
};

void check_encode(Codec codec, const Values& values, const Bytes& bytes, std::size_t offset) {
  FloatPlace from(values);
  Place to(bytes.size(), offset);
  encode(codec, from.data(), values.size(), to.data());
  EXPECT_EQ(to.content(), bytes);
  EXPECT_TRUE(to.is_intact());
}

void check_decode(Codec codec, const Bytes& bytes, const Values& before, std::size_t offset) {
  const std::size_t count = before.size();
  const Values expected = reference::decode(codec, bytes, count);
  Place from(bytes, offset);
  FloatPlace fresh(before);
  decode(codec, from.data(), count, fresh.data());
  EXPECT_TRUE(same_bits(fresh.content(), expected));
  FloatPlace added(before);
  decode_add(codec, from.data(), count, added.data());
  EXPECT_TRUE(same_bits(added.content(), reference::sum(before, expected)));
  EXPECT_TRUE(fresh.is_intact() && added.is_intact());
}

void check_residual(Codec codec, const Values& values, const Values& before, std::size_t offset) {
  Values total;
  for (std::size_t i = 0; i < values.size(); ++i) total.push_back(values[i] + before[i]);
  const Bytes bytes = reference::encode(codec, total);
  const Values arrived = reference::decode(codec, bytes, values.size());
  FloatPlace from(values);
  FloatPlace residual(before);
  Place to(bytes.size(), offset);
  encode_with_residual(codec, from.data(), residual.data(), values.size(), to.data());
  EXPECT_EQ(to.content(), bytes);
  EXPECT_TRUE(same_bits(residual.content(), reference::lost(total, arrived, before)));
  EXPECT_TRUE(same_bits(from.content(), values));
  EXPECT_TRUE(to.is_intact() && residual.is_intact());
}

void check_all(Codec codec, Kind kind, std::size_t count, std::mt19937_64& random) {
  const std::size_t offset = random() % 8;
  SCOPED_TRACE(testing::Message() << name_of(codec) << " kind " << static_cast<int>(kind)
                                  << " count " << count << " offset " << offset);
  const Values values = values_of(kind, count, random);
  const Values before = values_of(Kind::kGradients, count, random);
  const Bytes bytes = reference::encode(codec, values);
  ASSERT_EQ(bytes.size(), encoded_bytes(codec, count));
  check_encode(codec, values, bytes, offset);
  check_decode(codec, bytes, before, offset);
  check_residual(codec, values, before, offset);
}

TEST_P(Wire, MatchesScalarReferenceForEveryCountToThreeHundred) {
  for (const Codec codec : kCodecs) {
    for (std::size_t count = 0; count <= 300; ++count) {
      for (const Kind kind : kKinds) check_all(codec, kind, count, random_);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Wire, MatchesScalarReferenceAroundTheEdgesOfLongBlocks) {
  for (const Codec codec : kCodecs) {
    for (const std::size_t count : {2047, 2048, 2049, 4095, 4096, 4097, 30011}) {
      for (const Kind kind : kKinds) check_all(codec, kind, count, random_);
      if (HasFailure()) return;
    }
  }
}

/// `bits`, or the only NaN that encode() writes.
std::uint16_t with_the_one_nan(Codec codec, std::uint16_t bits) {
  const std::uint16_t infinity = codec == Codec::kFp16 ? 0x7C00 : 0x7F80;
  const std::uint16_t nan = codec == Codec::kFp16 ? 0x7E00 : 0x7FC0;
  return (bits & 0x7FFF) > infinity ? nan : bits;
}

TEST_P(Wire, AllHalfPatternsDecodeAsTheScalarReference) {
  for (const Codec codec : {Codec::kFp16, Codec::kBf16}) {
    for (const float scale : {1.0F, 0x1p-126F, 0x1p-14F, 0x1p+100F}) {
      Bytes bytes;
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const bool begins_block = i % codec_block(codec) == 0;
        if (codec == Codec::kFp16 && begins_block) reference::append(bytes, scale);
        reference::append(bytes, with_the_one_nan(codec, static_cast<std::uint16_t>(i)));
      }
      check_decode(codec, bytes, Values(65536, 0.5F), 1);
    }
  }
}

TEST_P(Wire, ABufferCutAtBlocksGivesTheSameBytes) {
  for (const Codec codec : kCodecs) {
    const Values values = values_of(Kind::kWide, 3 * 2048 + 77, random_);
    const std::size_t cut = 2048;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(cut);
    Bytes pieces = encoded(codec, {values.begin(), middle});
    const Bytes rest = encoded(codec, {middle, values.end()});
    pieces.insert(pieces.end(), rest.begin(), rest.end());
    EXPECT_EQ(encoded(codec, values), pieces) << name_of(codec);
  }
}

void expect_error_below(Codec codec, const Values& values, const std::vector<double>& bounds) {
  const Values arrived = round_trip(codec, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(double{values[i]} - double{arrived[i]});
    ASSERT_LE(error, bounds[i]) << name_of(codec) << " of " << values[i] << " at " << i;
  }
}

double magnitude(float value) { return std::abs(double{value}); }

double bf16_bound(float value) {
  const bool overflows = magnitude(value) >= 0x1p128 - 0x1p119;
  return overflows ? kInf : std::max(std::ldexp(magnitude(value), -8), 0x1p-134);
}

/// The error bounds that codec/wire.h states.
std::vector<double> bounds_of(Codec codec, const Values& values) {
  const double max = reference::largest_finite(values);
  std::vector<double> bounds;
  for (const float value : values) {
    if (codec == Codec::kBf16) {
      bounds.push_back(bf16_bound(value));
    } else if (codec == Codec::kFp16) {
      bounds.push_back(std::max(std::ldexp(magnitude(value), -11), std::ldexp(max, -39)));
    } else {
      bounds.push_back(0.50002 * std::max(max / 127, 0x1p-126));
    }
  }
  return bounds;
}

TEST_P(Wire, ErrorsStayWithinTheStatedBounds) {
  for (const Codec codec : {Codec::kFp16, Codec::kBf16, Codec::kInt8}) {
    for (const Kind kind : {Kind::kGradients, Kind::kWide, Kind::kTiny}) {
      for (int i = 0; i < 50; ++i) {
        const Values values = values_of(kind, codec == Codec::kInt8 ? 128 : 2048, random_);
        expect_error_below(codec, values, bounds_of(codec, values));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Wire, ExactCodecKeepsEveryBit) {
  Values values;
  for (int i = 0; i < 1000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random_())));
  }
  EXPECT_TRUE(same_bits(round_trip(Codec::kNone, values), values));
}

// The reference could be wrong in the same way as the kernels, so these results are literals.
TEST_P(Wire, KnownValues) {
  // 2^-20 is scaled to 2^14; the third value is a tie in fp16, which goes to the even neighbour.
  const Values fp16{0x1p-20F, -0x1.8p-20F, 0x1.002p-20F, 0x1p-44F, 0x1p-58F, 0x1p-60F, -0.0F};
  const Bytes fp16_bytes{0x00, 0x00, 0x80, 0x2E,                          // 2^-34
                         0x00, 0x74, 0x00, 0xF6, 0x00, 0x74, 0x00, 0x14,  // 2^14 .. 2^-10
                         0x01, 0x00, 0x00, 0x00, 0x00, 0x80};             // 2^-24, nothing, -0
  EXPECT_EQ(encoded(Codec::kFp16, fp16), fp16_bytes);

  const Values bf16{1.0F, -2.5F, 0x1.01p+0F, 0x1.03p+0F, kMax, -kInf, kNan};
  const Bytes bf16_bytes{0x80, 0x3F, 0x20, 0xC0, 0x80, 0x3F, 0x82,
                         0x3F, 0x80, 0x7F, 0x80, 0xFF, 0xC0, 0x7F};
  EXPECT_EQ(encoded(Codec::kBf16, bf16), bf16_bytes);

  // The scale is 2; 1 and 3 are ties between 0, 2 and 4.
  const Values int8{254, -254, 1, 3, -3, 7.5F};
  EXPECT_EQ(encoded(Codec::kInt8, int8), (Bytes{0, 0, 0, 0x40, 127, 0x81, 0, 2, 0xFE, 4}));
  EXPECT_EQ(round_trip(Codec::kInt8, int8), (Values{254, -254, 0, 4, -4, 8}));
}

TEST_P(Wire, OverflowOfAGradientArrivesWhereItWas) {
  for (const Codec codec : {Codec::kFp16, Codec::kBf16}) {
    Values values = values_of(Kind::kGradients, 3000, random_);
    const Values calm = round_trip(codec, values);
    values[5] = kInf;
    values[6] = -kInf;
    values[2900] = -kNan;
    Values expected = calm;
    expected[5] = kInf;
    expected[6] = -kInf;
    expected[2900] = kNan;
    // The block's scale comes from the finite values, of which the largest is unchanged.
    EXPECT_TRUE(same_bits(round_trip(codec, values), expected)) << name_of(codec);
  }
}

TEST_P(Wire, OneInfinityMakesItsInt8BlockNanAndNoOther) {
  Values values = values_of(Kind::kGradients, 300, random_);
  Values expected = round_trip(Codec::kInt8, values);
  for (const float poison : {kInf, -kInf, kNan}) {
    values[200] = poison;
    std::fill(expected.begin() + 128, expected.begin() + 256, kNan);
    EXPECT_TRUE(same_bits(round_trip(Codec::kInt8, values), expected)) << poison;
  }
}

TEST_P(Wire, FiniteValuesStayFiniteAtTheEndsOfTheRange) {
  for (const Codec codec : {Codec::kFp16, Codec::kInt8}) {
    for (const float extreme : {kMax, -kMax, std::nextafter(kMax, 0.0F), 0x1p+127F, kTiniest,
                                -kTiniest, 0x1p-126F, 0x1p-119F, 0x1p-112F}) {
      const Values arrived = round_trip(codec, {extreme, 0, -extreme});
      EXPECT_TRUE(std::isfinite(arrived[0])) << name_of(codec) << " of " << extreme;
      EXPECT_EQ(arrived[0], -arrived[2]) << name_of(codec) << " of " << extreme;
      EXPECT_NEAR(arrived[0], extreme, std::max(magnitude(extreme) / 1024, 0x1p-127));
    }
  }
}

TEST_P(Wire, TheTiniestGradientsSurviveFp16Alone) {
  const Values tiny{kTiniest, -3 * kTiniest, 0x1p-140F, 0x1p-126F};
  EXPECT_TRUE(same_bits(round_trip(Codec::kFp16, tiny), tiny));
}

TEST_P(Wire, ErrorFeedbackLosesNothingOverManySteps) {
  constexpr std::size_t kCount = 1000;
  constexpr int kNumSteps = 200;
  for (const Codec codec : kCodecs) {
    Values residual(kCount);
    std::vector<double> sent(kCount);
    std::vector<double> arrived(kCount);
    Bytes bytes(encoded_bytes(codec, kCount));
    auto* raw = reinterpret_cast<std::byte*>(bytes.data());
    for (int step = 0; step < kNumSteps; ++step) {
      const Values values = values_of(Kind::kGradients, kCount, random_);
      encode_with_residual(codec, values.data(), residual.data(), kCount, raw);
      const Values now = decoded(codec, bytes, kCount);
      for (std::size_t i = 0; i < kCount; ++i) sent[i] += values[i];
      for (std::size_t i = 0; i < kCount; ++i) arrived[i] += now[i];
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      // Each step rounds one sum of float32 below 2^-7.
      ASSERT_NEAR(arrived[i] + double{residual[i]}, sent[i], kNumSteps * 0x1p-32)
          << name_of(codec) << " element " << i;
    }
  }
}

TEST_P(Wire, AStepThatOverflowsLeavesTheResidualAsItWas) {
  for (const Codec codec : kCodecs) {
    const Values before = values_of(Kind::kGradients, 256, random_);
    Values values = values_of(Kind::kGradients, 256, random_);
    values[3] = kInf;
    values[4] = kNan;
    Values residual = before;
    Bytes bytes(encoded_bytes(codec, 256));
    encode_with_residual(codec, values.data(), residual.data(), 256,
                         reinterpret_cast<std::byte*>(bytes.data()));
    const std::size_t kept = codec == Codec::kInt8 ? 128 : 5;
    const std::size_t first = codec == Codec::kInt8 ? 0 : 3;
    for (std::size_t i = first; i < kept; ++i) EXPECT_EQ(residual[i], before[i]) << i;
    for (const float value : residual) ASSERT_TRUE(std::isfinite(value)) << name_of(codec);
    EXPECT_NE(residual[200], before[200]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Wire, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

}  // namespace
}  // namespace slipstream
