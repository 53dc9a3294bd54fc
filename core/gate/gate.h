#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace slipstream {

constexpr std::size_t kCacheLineBytes = 64;

/// Whether a 32-bit counter, which may wrap, has reached `target`: it is equal or less than 2^31
/// steps ahead. A device that waits for a word compares in the same way.
[[nodiscard]] constexpr bool reached(std::uint32_t value, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(value - target) >= 0;
}

/// A 32-bit word of host memory that the CPU and a device share, alone on its cache line.
struct alignas(kCacheLineBytes) SharedWord {
  std::atomic<std::uint32_t> value{0};
};
static_assert(sizeof(SharedWord) == kCacheLineBytes);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The two flags of a slot. Their values are sequence numbers of chunks, which only move forward.
struct Gate {
  SharedWord in;   ///< the last chunk that the device has copied into the slot
  SharedWord out;  ///< the last chunk that the engine has finished in the slot
};

}  // namespace slipstream
