#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "slipstream/error.h"

namespace slipstream {

/// Tokens of operations that have completed, for one thread that turns them into futures.
class TokenQueue {
 public:
  void push(std::uint64_t token);
  /// Blocks until a token is there; nothing after `until` or close().
  std::optional<std::uint64_t> pop(TimePoint until);
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::uint64_t> tokens_;  // guarded by mutex_
  bool closed_ = false;               // guarded by mutex_
};

/// The outcome of one operation, shared by the engine, which sets it once, and any number of
/// threads that look or wait.
class Completion {
 public:
  [[nodiscard]] bool done() const noexcept {
    return state_.load(std::memory_order_acquire) == kDone;
  }
  /// Blocks until done or `until`; true when done.
  bool wait(TimePoint until) noexcept;
  /// The rest is valid once done().
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  /// Rank in the group whose message a receive took.
  [[nodiscard]] std::uint32_t source() const noexcept { return source_; }

  /// Has `token` pushed to `queue` when done; at once if it is. At most one per operation.
  void notify(const std::shared_ptr<TokenQueue>& queue, std::uint64_t token);

  void set_source(std::uint32_t source) noexcept { source_ = source; }
  /// Ends the operation; only the first call counts.
  void finish(std::optional<Error> error) noexcept;

 private:
  enum State : std::uint32_t { kPending, kWaitedFor, kDone };

  std::atomic<std::uint32_t> state_{kPending};  // a futex word
  std::optional<Error> error_;
  std::uint32_t source_ = 0;
  std::mutex notify_mutex_;
  std::shared_ptr<TokenQueue> queue_;  // guarded by notify_mutex_
  std::uint64_t token_ = 0;            // guarded by notify_mutex_
};

}  // namespace slipstream
