#include "curve.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "reference.h"

namespace slipstream::kernels {
namespace {

double by_lines(const Curve& curve, float x) {
  const float at = std::min(std::abs(x), curve.reach);
  const auto segment = static_cast<int>(std::nearbyint(at * Curve::kSegments / curve.reach));
  return static_cast<double>(std::max(x, 0.0F) + at * curve.slope[segment] + curve.height[segment]);
}

double greatest_error(Activation activation) {
  Epilogue epilogue;
  epilogue.activation = activation;
  double worst = 0;
  for (int step = -200'000; step <= 200'000; ++step) {
    const float x = static_cast<float>(step) * 1e-4F;
    const double exact = reference::activate(epilogue, static_cast<double>(x));
    worst = std::max(worst, std::abs(by_lines(curve_of(activation), x) - exact));
  }
  return worst;
}

TEST(Curve, IsCloseToSilu) { EXPECT_LT(greatest_error(Activation::kSilu), 0.0031); }

TEST(Curve, IsCloseToGelu) { EXPECT_LT(greatest_error(Activation::kGelu), 0.001); }

TEST(Curve, IsExactBeyondItsReach) {
  for (const Activation activation : {Activation::kSilu, Activation::kGelu}) {
    EXPECT_EQ(by_lines(curve_of(activation), 1000.0F), 1000.0);
    EXPECT_EQ(by_lines(curve_of(activation), -1000.0F), 0.0);
  }
}

}  // namespace
}  // namespace slipstream::kernels
