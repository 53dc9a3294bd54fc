#pragma once

#include <cstddef>
#include <cstdint>

#include "epilogue.h"

namespace slipstream::kernels {

/// How exactly a curve follows its function, which depends on where the values go.
enum class Degree : std::uint8_t {
  kLines = 1,      ///< of bytes: SiLU to 0.004, GELU to 0.002
  kParabolas = 2,  ///< of bfloat16: SiLU to 1.1e-4, GELU to 3e-5
  kQuintics = 5,   ///< of float32: to 4e-7
};

/// Whether a segment's polynomial is of the distance from its middle, in segments, as higher
/// powers of float32 need; or of the number itself.
constexpr bool is_local(Degree degree) { return degree == Degree::kQuintics; }

/// An even function that is 0 at 0, as polynomials, each around a whole multiple of
/// reach / (kSegments - 1).
struct Curve {
  static constexpr std::size_t kSegments = 32;
  float reach;  ///< the function counts as 0 from here on
  /// Of each power, the lowest first, per segment.
  float coefficients[6][kSegments];
};

/// activation(x) - max(x, 0), for SiLU and GELU.
const Curve& curve_of(Activation activation, Degree degree);

}  // namespace slipstream::kernels
