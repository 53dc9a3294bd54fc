#pragma once

#include <cstddef>
#include <cstdint>

#include "epilogue.h"

namespace slipstream::kernels {

/// Degree of a curve's polynomials. It depends on the format of the results.
enum class Degree : std::uint8_t {
  kLines = 1,      ///< for bytes: error of SiLU 0.004, of GELU 0.002
  kParabolas = 2,  ///< for bfloat16: error of SiLU 1.1e-4, of GELU 3e-5
  kQuintics = 5,   ///< for float32: error of both 4e-7
};

/// True if the variable of a segment's polynomial is the distance from its middle, in segments, as
/// higher powers in float32 need; otherwise the variable is x itself.
constexpr bool is_local(Degree degree) { return degree == Degree::kQuintics; }

/// An even function that is 0 at 0, as one polynomial per segment. Segments are centred on the
/// multiples of reach / (kSegments - 1).
struct Curve {
  static constexpr std::size_t kSegments = 32;
  float reach;  ///< the function is taken as 0 from here on
  /// [power][segment], the lowest power first.
  float coefficients[6][kSegments];
};

/// The curve of activation(x) - max(x, 0), for SiLU or GELU.
const Curve& curve_of(Activation activation, Degree degree);

}  // namespace slipstream::kernels
