#include "curve.h"

#include <cmath>

namespace slipstream::kernels {
namespace {

/// Lines of least greatest error: through the ends of a segment, moved by half of the middle's.
template <typename Function>
Curve fit(float reach, const Function& rest) {
  Curve curve{};
  curve.reach = reach;
  const double width = static_cast<double>(reach) / Curve::kSegments;
  for (int segment = 0; segment <= Curve::kSegments; ++segment) {
    const double middle = segment * width;
    const double low = segment == 0 ? 0.0 : middle - width / 2;
    const double high = middle + width / 2;
    const double slope = (rest(high) - rest(low)) / (high - low);
    const double centre = (low + high) / 2;
    const double error = rest(centre) - (rest(low) + rest(high)) / 2;
    curve.slope[segment] = static_cast<float>(slope);
    curve.height[segment] = static_cast<float>(rest(low) - slope * low + error / 2);
  }
  curve.slope[Curve::kSegments] = 0.0F;
  curve.height[Curve::kSegments] = 0.0F;
  return curve;
}

}  // namespace

const Curve& curve_of(Activation activation) {
  static const Curve silu = fit(8.0F, [](double x) { return -x / (1.0 + std::exp(x)); });
  static const Curve gelu =
      fit(4.0F, [](double x) { return -x * std::erfc(x * std::sqrt(0.5)) / 2; });
  return activation == Activation::kSilu ? silu : gelu;
}

}  // namespace slipstream::kernels
