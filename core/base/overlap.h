#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace slipstream {

/// Whether two ranges of memory have a byte in common.
inline bool overlap(std::span<const std::byte> left, std::span<const std::byte> right) noexcept {
  const std::less<> before;  // a total order even for pointers into different objects
  return before(left.data(), right.data() + right.size()) &&
         before(right.data(), left.data() + left.size()) && !left.empty() && !right.empty();
}

}  // namespace slipstream
