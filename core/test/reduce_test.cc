#include "reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reduce/reduce_kernels.h"
// After reduce_kernels.h, which selects the Highway targets that are compiled.
#include "hwy/targets.h"
#include "slipstream/error.h"
#include "test/reduce_reference.h"

namespace slipstream {
namespace {

using Buffer = std::vector<std::uint8_t>;

const std::vector<std::size_t> kCounts{0, 1, 7, 63, 64, 65, 1000, 4097};
constexpr std::uint32_t kInf32 = 0x7F800000;
constexpr std::uint64_t kInf64 = 0x7FF0000000000000;

template <typename T>
std::vector<T> with_negatives(std::vector<T> bits) {
  const std::size_t count = bits.size();
  for (std::size_t i = 0; i < count; ++i) {
    bits.push_back(static_cast<T>(bits[i] | (T{1} << (8 * sizeof(T) - 1))));
  }
  return bits;
}

/// Zero, one, smallest and largest subnormal, smallest and largest normal, infinity, quiet NaN with
/// a payload, signalling NaN; each with both signs.
template <typename T>
std::vector<T> special_floats(T one, T infinity, T smallest_normal) {
  const T is_quiet = smallest_normal >> 1;
  return with_negatives<T>({T{0}, one, T{1}, static_cast<T>(smallest_normal - 1), smallest_normal,
                            static_cast<T>(infinity - 1), infinity,
                            static_cast<T>(infinity | is_quiet | 5), static_cast<T>(infinity | 1)});
}

template <typename T>
void scatter(Buffer& buffer, const std::vector<T>& specials, std::mt19937_64& random) {
  for (std::size_t at = 0; at + sizeof(T) <= buffer.size(); at += sizeof(T)) {
    if (random() % 4 != 0) continue;
    const T value = specials[random() % specials.size()];
    std::memcpy(buffer.data() + at, &value, sizeof(T));
  }
}

/// Numbers of ordinary size, whose sums round and whose products do not overflow.
template <typename T>
void scatter_ordinary(Buffer& buffer, std::mt19937_64& random) {
  std::uniform_real_distribution<double> ordinary(-100, 100);
  std::vector<T> values(64);
  for (T& value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(ordinary(random));
    } else {
      value = T::of(static_cast<float>(ordinary(random)));
    }
  }
  scatter(buffer, values, random);
  scatter(buffer, values, random);
}

/// Random bits with scattered special and ordinary values.
Buffer elements_of(DType dtype, std::size_t count, std::mt19937_64& random) {
  Buffer buffer(count * size_of(dtype));
  for (auto& byte : buffer) byte = static_cast<std::uint8_t>(random());
  switch (dtype) {
    case DType::kFloat16:
      scatter_ordinary<reference::Float16>(buffer, random);
      scatter(buffer, special_floats<std::uint16_t>(0x3C00, 0x7C00, 0x0400), random);
      break;
    case DType::kBFloat16:
      scatter_ordinary<reference::BFloat16>(buffer, random);
      scatter(buffer, special_floats<std::uint16_t>(0x3F80, 0x7F80, 0x0080), random);
      break;
    case DType::kFloat32:
    case DType::kComplex64:
      scatter_ordinary<float>(buffer, random);
      scatter(buffer, special_floats<std::uint32_t>(0x3F800000, kInf32, 1u << 23), random);
      break;
    case DType::kFloat64:
    case DType::kComplex128:
      scatter_ordinary<double>(buffer, random);
      scatter(buffer, special_floats<std::uint64_t>(1023ull << 52, kInf64, 1ull << 52), random);
      break;
    case DType::kBool:
      scatter<std::uint8_t>(buffer, {0, 1, 0x80, 0xFF}, random);
      scatter<std::uint8_t>(buffer, {0}, random);
      break;
    default:
      scatter<std::uint8_t>(buffer, {0, 0x7F, 0x80, 0xFF}, random);
      break;
  }
  return buffer;
}

/// Stores `content` at `offset` bytes from an aligned address. It ends with the memory, so that the
/// address sanitizer detects an access past it; is_intact() detects a change before it.
class Placed {
 public:
  Placed(const Buffer& content, std::size_t offset) : offset_(offset), bytes_(offset, kCanary) {
    bytes_.insert(bytes_.end(), content.begin(), content.end());
    bytes_.shrink_to_fit();
  }
  std::uint8_t* data() { return bytes_.data() + offset_; }
  [[nodiscard]] Buffer content() const {
    return {bytes_.begin() + static_cast<std::ptrdiff_t>(offset_), bytes_.end()};
  }
  [[nodiscard]] bool is_intact() const {
    const auto end = bytes_.begin() + static_cast<std::ptrdiff_t>(offset_);
    return std::all_of(bytes_.begin(), end, [](std::uint8_t byte) { return byte == kCanary; });
  }

 private:
  static constexpr std::uint8_t kCanary = 0xA5;
  std::size_t offset_;
  Buffer bytes_;
};

std::string hex(const Buffer& bytes, std::size_t at, std::size_t size) {
  std::string text;
  for (std::size_t i = size; i-- > 0;) {
    text += "0123456789abcdef"[bytes[at + i] >> 4];
    text += "0123456789abcdef"[bytes[at + i] & 15];
  }
  return text;
}

/// The first element that differs, with its operands.
testing::AssertionResult same_bits(DType dtype, const Buffer& actual, const Buffer& expected,
                                   const Buffer& lower, const Buffer& upper) {
  const auto [at, unused] = std::mismatch(actual.begin(), actual.end(), expected.begin());
  if (at == actual.end()) return testing::AssertionSuccess();
  const std::size_t size = size_of(dtype);
  const std::size_t byte = static_cast<std::size_t>(at - actual.begin()) / size * size;
  return testing::AssertionFailure()
         << name_of(dtype) << " element " << byte / size << ": " << hex(actual, byte, size)
         << ", expected " << hex(expected, byte, size) << " of " << hex(lower, byte, size)
         << " and " << hex(upper, byte, size);
}

/// A set of targets; its width is not the same in Highway 0.16 and 1.0.
using TargetMask = decltype(hwy::SupportedAndGeneratedTargets())::value_type;

/// One test per target that is compiled and that this CPU supports.
class Reduce : public testing::TestWithParam<TargetMask> {
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

  std::mt19937_64 random_{20240531};
};

void check(DType dtype, ReduceOp op, const Buffer& lower, const Buffer& upper, std::size_t offset) {
  const std::size_t count = lower.size() / size_of(dtype);
  Buffer expected(lower.size());
  reference::reduce(dtype, op, expected.data(), lower.data(), upper.data(), count);

  Placed apart(Buffer(lower.size(), 0xCC), offset);
  Placed first(lower, (offset + 1) % 4 * offset);
  Placed second(upper, (offset + 2) % 4 * offset);
  reduce(dtype, op, apart.data(), first.data(), second.data(), count);
  EXPECT_TRUE(same_bits(dtype, apart.content(), expected, lower, upper)) << "apart";
  EXPECT_EQ(first.content(), lower);
  EXPECT_EQ(second.content(), upper);
  EXPECT_TRUE(apart.is_intact());

  Placed onto_lower(lower, offset);
  reduce(dtype, op, onto_lower.data(), onto_lower.data(), second.data(), count);
  EXPECT_TRUE(same_bits(dtype, onto_lower.content(), expected, lower, upper)) << "onto lower";

  Placed onto_upper(upper, offset);
  reduce(dtype, op, onto_upper.data(), first.data(), onto_upper.data(), count);
  EXPECT_TRUE(same_bits(dtype, onto_upper.content(), expected, lower, upper)) << "onto upper";
  EXPECT_TRUE(onto_lower.is_intact() && onto_upper.is_intact());
}

void check_every_op(DType dtype, const Buffer& lower, const Buffer& upper, std::size_t offset) {
  for (std::size_t i = 0; i < kNumReduceOps; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    if (!is_supported(op, dtype)) continue;
    SCOPED_TRACE(std::string(name_of(op)) + " offset " + std::to_string(offset) + " bytes " +
                 std::to_string(lower.size()));
    check(dtype, op, lower, upper, offset);
  }
}

TEST_P(Reduce, MatchesScalarReferenceForEveryDTypeOpSizeAlignmentAndAlias) {
  for (std::size_t i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const std::size_t count : kCounts) {
      const Buffer lower = elements_of(dtype, count, random_);
      const Buffer upper = elements_of(dtype, count, random_);
      for (const std::size_t offset : {0, 1, 3, 8}) check_every_op(dtype, lower, upper, offset);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Reduce, EverySpecialValueMeetsEveryOther) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64,
                            DType::kComplex64, DType::kComplex128}) {
    // So many draws that each pair of the 18 values occurs several times.
    const Buffer lower = elements_of(dtype, 40000, random_);
    const Buffer upper = elements_of(dtype, 40000, random_);
    check_every_op(dtype, lower, upper, 0);
  }
}

Buffer all_16_bit_patterns() {
  Buffer patterns(2 * 65536);
  for (std::size_t i = 0; i < 65536; ++i) {
    patterns[2 * i] = static_cast<std::uint8_t>(i);
    patterns[2 * i + 1] = static_cast<std::uint8_t>(i >> 8);
  }
  return patterns;
}

Buffer repeated(std::uint16_t bits) {
  Buffer buffer(2 * 65536);
  for (std::size_t at = 0; at < buffer.size(); at += 2) std::memcpy(&buffer[at], &bits, 2);
  return buffer;
}

TEST_P(Reduce, All16BitPatternsOfBothHalfFormats) {
  const Buffer patterns = all_16_bit_patterns();
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int partner : {0x8000, 0x0001, 0x3C00, 0xBF80, 0x4155, 0x7BFF, 0x7F7F}) {
      const Buffer upper = repeated(static_cast<std::uint16_t>(partner));
      check_every_op(dtype, patterns, upper, 0);
      if (HasFailure()) return;
    }
    Buffer reversed(patterns.rbegin(), patterns.rend());
    check_every_op(dtype, patterns, reversed, 0);
  }
}

TEST_P(Reduce, DividesAsTheScalarReference) {
  for (std::size_t i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!is_supported(ReduceOp::kAverage, dtype)) continue;
    for (const std::uint32_t divisor : {1u, 2u, 3u, 7u, 128u, 1000u, 70000u, 0xFFFFFFFFu}) {
      for (const std::size_t count : kCounts) {
        const Buffer values = elements_of(dtype, count, random_);
        Buffer expected = values;
        reference::divide(dtype, expected.data(), count, divisor);
        Placed actual(values, divisor % 4);
        divide(dtype, actual.data(), count, divisor);
        ASSERT_TRUE(same_bits(dtype, actual.content(), expected, values, values))
            << "by " << divisor;
        ASSERT_TRUE(actual.is_intact());
      }
    }
  }
}

TEST_P(Reduce, DividesAll16BitPatternsOfBothHalfFormats) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const std::uint32_t divisor : {1u, 2u, 3u, 12u}) {
      Buffer actual = all_16_bit_patterns();
      Buffer expected = actual;
      divide(dtype, actual.data(), 65536, divisor);
      reference::divide(dtype, expected.data(), 65536, divisor);
      ASSERT_TRUE(same_bits(dtype, actual, expected, all_16_bit_patterns(), all_16_bit_patterns()));
    }
  }
}

// The reference could be wrong in the same way as the kernels, so these results are literals.
TEST_P(Reduce, KnownValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::array<float, 4> lower{1.5F, -0.0F, nan, 3.0F};
  std::array<float, 4> upper{2.25F, 0.0F, 1.0F, nan};
  std::array<std::uint32_t, 4> minimum{};
  reduce(DType::kFloat32, ReduceOp::kMin, minimum.data(), lower.data(), upper.data(), 4);
  EXPECT_EQ(minimum,
            (std::array<std::uint32_t, 4>{0x3FC00000, 0x80000000, 0x7FC00000, 0x7FC00000}));

  // float16: 2048 + 1 is a tie, which goes to the even 2048; 2048 + 3 goes to 2052; 65504 + 16 is
  // halfway to 65536, which does not exist; the two smallest subnormals add up.
  std::array<std::uint16_t, 4> half{0x6800, 0x6800, 0x7BFF, 0x0001};
  const std::array<std::uint16_t, 4> added{0x3C00, 0x4200, 0x4C00, 0x0001};
  reduce(DType::kFloat16, ReduceOp::kSum, half.data(), half.data(), added.data(), 4);
  EXPECT_EQ(half, (std::array<std::uint16_t, 4>{0x6800, 0x6802, 0x7C00, 0x0002}));

  std::array<std::complex<float>, 1> product{{{1, 2}}};
  const std::array<std::complex<float>, 1> factor{{{3, -5}}};
  reduce(DType::kComplex64, ReduceOp::kProduct, product.data(), product.data(), factor.data(), 1);
  EXPECT_EQ(product[0], std::complex<float>(13, 1));

  std::array<std::int8_t, 3> average{-7, 100, -128};
  divide(DType::kInt8, average.data(), 3, 2);
  EXPECT_EQ(average, (std::array<std::int8_t, 3>{-3, 50, -64}));
}

TEST_P(Reduce, RefusesAnOperationThatTheDTypeLacks) {
  std::array<double, 2> value{};
  EXPECT_THROW(
      reduce(DType::kComplex128, ReduceOp::kMax, value.data(), value.data(), value.data(), 1),
      Error);
  EXPECT_THROW(divide(DType::kFloat64, value.data(), 1, 0), Error);
}

INSTANTIATE_TEST_SUITE_P(Targets, Reduce, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

}  // namespace
}  // namespace slipstream
