#include "engine/completion.h"

#include <utility>

#include "base/futex.h"

namespace slipstream {

void TokenQueue::push(std::uint64_t token) {
  {
    const std::scoped_lock lock(mutex_);
    tokens_.push_back(token);
  }
  filled_.notify_one();
}

std::optional<std::uint64_t> TokenQueue::pop(TimePoint until) {
  std::unique_lock lock(mutex_);
  filled_.wait_until(lock, until, [&] { return closed_ || !tokens_.empty(); });
  if (tokens_.empty()) return std::nullopt;
  const std::uint64_t token = tokens_.front();
  tokens_.pop_front();
  return token;
}

void TokenQueue::close() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  filled_.notify_all();
}

bool Completion::wait(TimePoint until) noexcept {
  while (!done()) {
    std::uint32_t pending = kPending;
    state_.compare_exchange_strong(pending, kWaitedFor, std::memory_order_acq_rel);
    if (Clock::now() >= until) return done();
    futex_wait(state_, kWaitedFor, until);
  }
  return true;
}

void Completion::notify(const std::shared_ptr<TokenQueue>& queue, std::uint64_t token) {
  {
    const std::scoped_lock lock(notify_mutex_);
    if (!done()) {
      queue_ = queue;
      token_ = token;
      return;
    }
  }
  queue->push(token);
}

void Completion::finish(std::optional<Error> error) noexcept {
  if (done()) return;
  error_ = std::move(error);
  std::shared_ptr<TokenQueue> queue;
  {
    const std::scoped_lock lock(notify_mutex_);
    if (state_.exchange(kDone, std::memory_order_acq_rel) == kWaitedFor) futex_wake(state_);
    queue = std::move(queue_);
  }
  if (queue) queue->push(token_);
}

}  // namespace slipstream
