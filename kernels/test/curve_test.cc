#include "curve.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "reference.h"

namespace slipstream::kernels {
namespace {

double by_curve(Activation activation, Degree degree, float x) {
  const Curve& curve = curve_of(activation, degree);
  const float at = std::min(std::abs(x), curve.reach);
  const float segments = at * (Curve::kSegments - 1) / curve.reach;
  const float whole = std::nearbyint(segments);
  const float distance = is_local(degree) ? segments - whole : at;
  float sum = 0;
  for (auto power = static_cast<std::size_t>(degree) + 1; power-- > 0;) {
    sum = sum * distance + curve.coefficients[power][static_cast<std::size_t>(whole)];
  }
  return static_cast<double>(std::max(x, 0.0F) + sum);
}

double greatest_error(Activation activation, Degree degree) {
  Epilogue epilogue;
  epilogue.activation = activation;
  double worst = 0;
  for (int step = -200'000; step <= 200'000; ++step) {
    const float x = static_cast<float>(step) * 1e-4F;
    const double exact = reference::activate(epilogue, static_cast<double>(x));
    const double error = std::abs(by_curve(activation, degree, x) - exact);
    worst = std::max(worst, error - std::abs(exact) * 1e-7);
  }
  return worst;
}

TEST(Curve, IsCloseToSilu) {
  EXPECT_LT(greatest_error(Activation::kSilu, Degree::kLines), 0.004);
  EXPECT_LT(greatest_error(Activation::kSilu, Degree::kParabolas), 1.1e-4);
  EXPECT_LT(greatest_error(Activation::kSilu, Degree::kQuintics), 4e-7);
}

TEST(Curve, IsCloseToGelu) {
  EXPECT_LT(greatest_error(Activation::kGelu, Degree::kLines), 0.002);
  EXPECT_LT(greatest_error(Activation::kGelu, Degree::kParabolas), 3e-5);
  EXPECT_LT(greatest_error(Activation::kGelu, Degree::kQuintics), 4e-7);
}

TEST(Curve, IsExactBeyondItsReachAndAtZero) {
  for (const Activation activation : {Activation::kSilu, Activation::kGelu}) {
    for (const Degree degree : {Degree::kLines, Degree::kParabolas, Degree::kQuintics}) {
      EXPECT_EQ(by_curve(activation, degree, 1000.0F), 1000.0);
      EXPECT_EQ(by_curve(activation, degree, -1000.0F), 0.0);
      EXPECT_EQ(by_curve(activation, degree, 0.0F), 0.0);
    }
  }
}

}  // namespace
}  // namespace slipstream::kernels
