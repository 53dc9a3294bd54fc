#include "slipstream/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace slipstream {
namespace {

static_assert(size_of(DType::kInt8) == 1 && size_of(DType::kBool) == 1);
static_assert(size_of(DType::kFloat16) == 2 && size_of(DType::kBFloat16) == 2);
static_assert(size_of(DType::kFloat32) == 4 && size_of(DType::kComplex64) == 8);
static_assert(size_of(DType::kUInt64) == 8 && size_of(DType::kComplex128) == 16);

TEST(DType, NamesMatchTheirValues) {
  EXPECT_EQ(name_of(DType::kInt8), "int8");
  EXPECT_EQ(name_of(DType::kUInt64), "uint64");
  EXPECT_EQ(name_of(DType::kFloat16), "float16");
  EXPECT_EQ(name_of(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(name_of(DType::kComplex128), "complex128");
  EXPECT_EQ(name_of(DType::kBool), "bool");
  EXPECT_EQ(name_of(ReduceOp::kSum), "sum");
  EXPECT_EQ(name_of(ReduceOp::kProduct), "product");
  EXPECT_EQ(name_of(ReduceOp::kBxor), "bxor");
}

TEST(DType, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kNumDTypes; ++i) names.insert(name_of(static_cast<DType>(i)));
  EXPECT_EQ(names.size(), kNumDTypes);
  std::set<std::string_view> ops;
  for (std::size_t i = 0; i < kNumReduceOps; ++i) ops.insert(name_of(static_cast<ReduceOp>(i)));
  EXPECT_EQ(ops.size(), kNumReduceOps);
}

TEST(DType, EveryDTypeHasSumAndProduct) {
  for (std::size_t i = 0; i < kNumDTypes; ++i) {
    EXPECT_TRUE(is_supported(ReduceOp::kSum, static_cast<DType>(i)));
    EXPECT_TRUE(is_supported(ReduceOp::kProduct, static_cast<DType>(i)));
  }
}

TEST(DType, ComplexHasNoOrder) {
  for (const DType dtype : {DType::kComplex64, DType::kComplex128}) {
    EXPECT_FALSE(is_supported(ReduceOp::kMin, dtype));
    EXPECT_FALSE(is_supported(ReduceOp::kMax, dtype));
    EXPECT_TRUE(is_supported(ReduceOp::kAverage, dtype));
  }
  EXPECT_TRUE(is_supported(ReduceOp::kMin, DType::kBFloat16));
  EXPECT_TRUE(is_supported(ReduceOp::kMax, DType::kBool));
}

TEST(DType, OnlyIntegersAndBoolHaveBits) {
  for (const ReduceOp op : {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) {
    for (std::size_t i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      const bool has_bits = dtype <= DType::kUInt64 || dtype == DType::kBool;
      EXPECT_EQ(is_supported(op, dtype), has_bits) << name_of(op) << " of " << name_of(dtype);
    }
  }
}

TEST(DType, BoolHasNoAverage) {
  EXPECT_FALSE(is_supported(ReduceOp::kAverage, DType::kBool));
  EXPECT_TRUE(is_supported(ReduceOp::kAverage, DType::kInt8));
}

}  // namespace
}  // namespace slipstream
