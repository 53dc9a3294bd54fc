#include "curve.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace slipstream::kernels {
namespace {

using Polynomial = std::vector<double>;  // coefficients, the lowest power first

/// The polynomial that equals `function` at the Chebyshev points of [low, high] (Newton's form).
template <typename Function>
Polynomial interpolate(std::size_t degree, double low, double high, const Function& function) {
  const std::size_t count = degree + 1;
  std::vector<double> at(count), difference(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double angle =
        std::numbers::pi * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    at[i] = (low + high) / 2 + (high - low) / 2 * std::cos(angle);
    difference[i] = function(at[i]);
  }
  for (std::size_t step = 1; step < count; ++step) {
    for (std::size_t i = count - 1; i >= step; --i) {
      difference[i] = (difference[i] - difference[i - 1]) / (at[i] - at[i - step]);
    }
  }
  Polynomial result(count, 0.0);
  for (std::size_t i = count; i-- > 0;) {  // result = result (x - at[i]) + difference[i]
    for (std::size_t power = count - 1; power > 0; --power) {
      result[power] = result[power - 1] - at[i] * result[power];
    }
    result[0] = difference[i] - at[i] * result[0];
  }
  return result;
}

/// A fit of `rest` on each segment. It is exactly 0 at 0, and 0 on the last segment.
template <typename Function>
Curve fit(Degree degree, double reach, const Function& rest) {
  Curve curve{};
  curve.reach = static_cast<float>(reach);
  const auto powers = static_cast<std::size_t>(degree);
  const double width = reach / (Curve::kSegments - 1);
  for (std::size_t segment = 0; segment + 1 < Curve::kSegments; ++segment) {
    const double middle = static_cast<double>(segment) * width;
    const double unit = is_local(degree) ? width : 1.0, origin = is_local(degree) ? middle : 0.0;
    const auto here = [&](double x) { return rest(origin + x * unit); };
    const double low = (middle - width / 2 - origin) / unit;
    const double high = (middle + width / 2 - origin) / unit;
    Polynomial found;
    if (segment == 0) {
      found = interpolate(powers - 1, 0.0, high, [&](double x) { return here(x) / x; });
      found.insert(found.begin(), 0.0);
    } else {
      found = interpolate(powers, low, high, here);
    }
    for (std::size_t power = 0; power <= powers; ++power) {
      curve.coefficients[power][segment] = static_cast<float>(found[power]);
    }
  }
  return curve;
}

/// At the end of its range the fit jumps to 0 from the value that the function has there.
double reach_of(Activation activation, Degree degree) {
  const bool silu = activation == Activation::kSilu;
  if (degree == Degree::kLines) return silu ? 8.0 : 4.0;
  if (degree == Degree::kParabolas) return silu ? 12.0 : 4.5;
  return silu ? 19.0 : 5.5;
}

Curve make(Activation activation, Degree degree) {
  const double reach = reach_of(activation, degree);
  if (activation == Activation::kSilu) {
    return fit(degree, reach, [](double x) { return -x / (1.0 + std::exp(x)); });
  }
  return fit(degree, reach, [](double x) { return -x * std::erfc(x * std::sqrt(0.5)) / 2; });
}

}  // namespace

const Curve& curve_of(Activation activation, Degree degree) {
  static const auto all = [] {
    std::array<std::array<Curve, 6>, 2> curves{};
    for (const Degree each : {Degree::kLines, Degree::kParabolas, Degree::kQuintics}) {
      curves[0][static_cast<std::size_t>(each)] = make(Activation::kSilu, each);
      curves[1][static_cast<std::size_t>(each)] = make(Activation::kGelu, each);
    }
    return curves;
  }();
  return all[activation == Activation::kSilu ? 0 : 1][static_cast<std::size_t>(degree)];
}

}  // namespace slipstream::kernels
