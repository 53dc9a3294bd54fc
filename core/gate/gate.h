#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace slipstream {

constexpr std::size_t kCacheLineBytes = 64;

/// Whether a wrapping 32-bit counter is at `target`, or past it by less than 2^31 steps. A device
/// that waits for a word compares in the same way.
[[nodiscard]] constexpr bool reached(std::uint32_t value, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(value - target) >= 0;
}

/// A 32-bit word of host memory that the CPU and a device share. Nothing else is on its cache line.
struct alignas(kCacheLineBytes) SharedWord {
  std::atomic<std::uint32_t> value{0};
};
static_assert(sizeof(SharedWord) == kCacheLineBytes);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The flags of one slot. Each has one writer and only ever moves forward.
struct Gate {
  SharedWord in;   ///< the device has put chunk `in` into the slot
  SharedWord out;  ///< the CPU has put the result of chunk `out` into the slot
};

}  // namespace slipstream
