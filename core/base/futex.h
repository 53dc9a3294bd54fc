#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace slipstream {

/// Blocks while `word` equals `expected`, until futex_wake() or the time `until`. May return early.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint until) noexcept;

/// Wakes all waiters, of this process and of other processes that map the word.
void futex_wake(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace slipstream
