#pragma once

#include "epilogue.h"

namespace slipstream::kernels {

/// An even function as straight lines, each around a whole multiple of reach / kSegments.
struct Curve {
  static constexpr int kSegments = 31;
  float reach;  ///< the function counts as 0 from here on
  float slope[kSegments + 1];
  float height[kSegments + 1];
};

/// activation(x) - max(x, 0), for SiLU (to 0.0031) and GELU (to 0.001).
const Curve& curve_of(Activation activation);

}  // namespace slipstream::kernels
