#include "engine/driver.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "base/futex.h"

namespace slipstream {
namespace {

// The interval at which local peers are checked for liveness.
constexpr Nanoseconds kLongestSleep = 100ms;
constexpr Nanoseconds kSpinOnOthers = 20us;  // before sleeping, while another thread drives

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void poll_fds(const std::vector<int>& fds, int event_fd, TimePoint until) {
  std::vector<pollfd> polled{{event_fd, POLLIN, 0}};
  for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
  const auto now = Clock::now();
  // Not until - now, because TimePoint::min() - now is out of range.
  const auto left = std::max(until, now) - now;
  const auto count = std::chrono::duration_cast<Nanoseconds>(left).count();
  const timespec timeout{count / 1'000'000'000, count % 1'000'000'000};
  ::ppoll(polled.data(), polled.size(), &timeout, nullptr);
}

}  // namespace

Driver::Driver(Driven& driven, Doorbell& doorbell, Options options)
    : driven_(driven), doorbell_(doorbell), options_(options) {}

void Driver::start() {
  progress_ = std::thread([this] { progress_loop(); });
}

void Driver::stop() {
  if (!progress_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  handovers_.fetch_add(1, std::memory_order_acq_rel);
  futex_wake(handovers_);
  doorbell_.wake();
  progress_.join();
}

TimePoint Driver::sleep_limit() const {
  return std::min(driven_.next_event(), Clock::now() + kLongestSleep);
}

template <typename Stop>
void Driver::poll_and_spin(const Stop& stop) {
  TimePoint idle_since = Clock::now();
  while (!stop()) {
    if (driven_.poll()) {
      idle_since = Clock::now();
    } else if (!driven_.is_urgent() || Clock::now() - idle_since > options_.spin) {
      return;
    } else if (options_.yields) {
      ::sched_yield();
    } else {
      pause();
    }
  }
}

/// The progress thread releases the token while it sleeps, so that a waiting caller can take it.
void Driver::progress_loop() {
  while (!stopping_.load(std::memory_order_acquire)) {
    const std::uint32_t seen = handovers_.load(std::memory_order_acquire);
    if (claims_.load(std::memory_order_acquire) > 0 || !token_.try_lock()) {
      parked_.store(true, std::memory_order_release);
      futex_wait(handovers_, seen, Clock::now() + kLongestSleep);
      parked_.store(false, std::memory_order_release);
      continue;
    }
    doorbell_.disarm();
    poll_and_spin([this] {
      return !driven_.has_work() || claims_.load(std::memory_order_relaxed) > 0 ||
             stopping_.load(std::memory_order_relaxed);
    });
    const bool in_poll = !driven_.wait_fds().empty();
    doorbell_.arm(in_poll);
    if (driven_.poll()) {
      doorbell_.disarm();
      token_.unlock();
      continue;
    }
    const TimePoint until = sleep_limit();
    const std::vector<int> fds = driven_.wait_fds();
    token_.unlock();
    if (in_poll) {
      poll_fds(fds, doorbell_.event_fd(), until);
    } else {
      doorbell_.sleep(until);
    }
  }
}

void Driver::sleep_with_token(TimePoint until) {
  const bool in_poll = !driven_.wait_fds().empty();
  doorbell_.arm(in_poll);
  if (driven_.poll() || claims_.load(std::memory_order_acquire) > 0) {
    doorbell_.disarm();
    return;
  }
  const TimePoint limit = std::min(until, sleep_limit());
  if (in_poll) {
    poll_fds(driven_.wait_fds(), doorbell_.event_fd(), limit);
  } else {
    doorbell_.sleep(limit);
  }
  doorbell_.disarm();
}

void Driver::drive(const Completion& completion, TimePoint until) {
  const auto claimed = [this] { return claims_.load(std::memory_order_acquire) > 0; };
  while (!completion.done() && !claimed() && Clock::now() < until) {
    poll_and_spin([&] { return completion.done() || claimed(); });
    if (!completion.done() && !claimed()) sleep_with_token(until);
  }
}

/// A thread that releases the token makes sure that another thread takes care of operations in
/// flight. It looks for work after the unlock: a kick() that failed to lock has announced its work
/// before. With nothing in flight the bell stays disarmed. Peers that are ahead then need not wake
/// anybody, and the progress thread looks again within kLongestSleep.
void Driver::release(bool returns_soon) {
  token_.unlock();
  handovers_.fetch_add(1, std::memory_order_acq_rel);
  if (returns_soon || !driven_.has_work()) return;
  if (parked_.load(std::memory_order_acquire)) {
    futex_wake(handovers_);
  } else {
    doorbell_.wake();
  }
}

void Driver::kick(bool returns_soon) {
  if (returns_soon && token_.try_lock()) {
    doorbell_.disarm();
    driven_.poll();
    return release(true);
  }
  handovers_.fetch_add(1, std::memory_order_acq_rel);
  if (parked_.load(std::memory_order_acquire)) {
    futex_wake(handovers_);
    doorbell_.bell().ring();  // a caller may be driving and asleep
  } else {
    doorbell_.wake();
  }
}

bool Driver::wait(Completion& completion, TimePoint until, bool returns_soon) {
  while (!completion.done()) {
    if (claims_.load(std::memory_order_acquire) == 0 && token_.try_lock()) {
      doorbell_.disarm();
      drive(completion, until);
      release(returns_soon);
    } else {
      const TimePoint spin_until = Clock::now() + kSpinOnOthers;
      while (!completion.done() && Clock::now() < spin_until) {
        options_.yields ? static_cast<void>(::sched_yield()) : pause();
      }
      completion.wait(std::min(until, Clock::now() + kLongestSleep));
    }
    if (Clock::now() >= until) break;
  }
  return completion.done();
}

void Driver::run_exclusively(const std::function<void()>& action) {
  claims_.fetch_add(1, std::memory_order_acq_rel);
  doorbell_.wake();
  token_.lock();
  claims_.fetch_sub(1, std::memory_order_acq_rel);
  doorbell_.disarm();
  try {
    action();
  } catch (...) {
    release(false);
    throw;
  }
  release(false);
}

void Driver::nap(Nanoseconds most) { sleep_with_token(Clock::now() + most); }

}  // namespace slipstream
