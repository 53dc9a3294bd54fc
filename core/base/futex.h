#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace slipstream {

/// Blocks while `word` holds `expected`, until futex_wake or `until`. May return early.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint until) noexcept;

/// Wakes every waiter, of this process and of others that map the word.
void futex_wake(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace slipstream
