#pragma once

#include <chrono>
#include <memory>

#include "module.h"
#include "slipstream/runtime.h"

namespace slipstream {

/// A group together with its runtime.
struct PyGroup {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Group> group;
};

/// Converts seconds from Python; the result is at most a century.
inline std::chrono::nanoseconds to_nanoseconds(double seconds) {
  constexpr double kCentury = 3.2e9;
  const double bounded = seconds < 0 ? 0 : (seconds > kCentury ? kCentury : seconds);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(bounded));
}

}  // namespace slipstream
