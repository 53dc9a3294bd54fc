#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace slipstream {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                TimePoint until) noexcept {
  const auto now = Clock::now();
  if (until <= now) return;  // checked first, because TimePoint::min() - now is out of range
  const auto left = std::chrono::duration_cast<Nanoseconds>(until - now);
  const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace slipstream
