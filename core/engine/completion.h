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

/// Tokens of completed operations, for one thread that turns them into futures.
class TokenQueue {
 public:
  void push(std::uint64_t token);
  /// Blocks until there is a token; returns nothing after `until` or close().
  std::optional<std::uint64_t> pop(TimePoint until);
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::uint64_t> tokens_;  // guarded by mutex_
  bool closed_ = false;               // guarded by mutex_
};

/// The outcome of one operation. The engine sets it once, and any number of threads read it or wait
/// for it.
class Completion {
 public:
  [[nodiscard]] bool done() const noexcept {
    return state_.load(std::memory_order_acquire) == kDone;
  }
  /// Blocks until the operation is done, or until `until`. Returns whether it is done.
  bool wait(TimePoint until) noexcept;
  /// The functions below are valid once done().
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  /// The sender of the message that a receive took, as rank in the group.
  [[nodiscard]] std::uint32_t source() const noexcept { return source_; }

  /// Makes the completion push `token` to `queue` when the operation is done, or at once if it is
  /// done already. At most one call per operation.
  void notify(const std::shared_ptr<TokenQueue>& queue, std::uint64_t token);

  void set_source(std::uint32_t source) noexcept { source_ = source; }
  /// Ends the operation; only the first call has an effect.
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
