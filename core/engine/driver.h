#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "engine/completion.h"

namespace slipstream {

/// The object that a driver drives. All functions run under the token, except those that any thread
/// may call.
class Driven {
 public:
  virtual ~Driven() = default;
  /// Does the work that can be done now, without blocking. Returns whether there was any.
  virtual bool poll() = 0;
  /// Whether operations are in flight or submitted. Any thread may call it.
  [[nodiscard]] virtual bool has_work() const noexcept = 0;
  /// Whether the awaited data may arrive within microseconds, so that spinning pays. Any thread may
  /// call it.
  [[nodiscard]] virtual bool is_urgent() const noexcept = 0;
  /// The time at which poll() must be called even if nothing arrives.
  [[nodiscard]] virtual TimePoint next_event() const = 0;
  /// Descriptors that become readable when there is work; if there are none, the doorbell is rung.
  [[nodiscard]] virtual const std::vector<int>& wait_fds() const = 0;
};

/// Decides which thread drives the engine. One thread at a time has the token and may touch the
/// engine. A caller inside wait() takes the token if it is free, so a small operation needs no
/// other thread; otherwise the progress thread has it. A driver spins for `spin` and then sleeps on
/// the doorbell, so that no core is kept busy.
class Driver {
 public:
  struct Options {
    Nanoseconds spin = 100us;  ///< before sleeping; about the cost of going to sleep and waking
    bool yields = false;       ///< whether to yield the core while spinning (more ranks than cores)
  };

  Driver(Driven& driven, Doorbell& doorbell, Options options);
  ~Driver() { stop(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Must be called before start().
  void set_yields(bool yields) { options_.yields = yields; }
  void start();  ///< starts the progress thread
  void stop();   ///< stops and joins the progress thread

  /// Announces new work and wakes the driver. With `returns_soon` the caller is about to call
  /// wait(), so this thread does the work that can be done now, and no other thread is woken.
  void kick(bool returns_soon);

  /// Blocks until `completion` is done, or until `until`, and drives if no other thread does.
  /// Returns whether it is done. With `returns_soon` the caller will drive again soon, so no other
  /// thread must be woken for that.
  bool wait(Completion& completion, TimePoint until, bool returns_soon = false);

  /// Runs `action` under the token, while the driver is stopped.
  void run_exclusively(const std::function<void()>& action);
  /// For an action that must wait: sleeps until something arrives, at most for `most`.
  void nap(Nanoseconds most);

 private:
  void progress_loop();
  void drive(const Completion& completion, TimePoint until);
  template <typename Stop>
  void poll_and_spin(const Stop& stop);
  void sleep_with_token(TimePoint until);
  void release(bool returns_soon);
  [[nodiscard]] TimePoint sleep_limit() const;

  Driven& driven_;
  Doorbell& doorbell_;
  Options options_;
  std::mutex token_;
  std::atomic<std::uint32_t> handovers_{0};  // a futex word: counts releases of the token
  std::atomic<bool> parked_{false};          // the progress thread sleeps on handovers_
  std::atomic<int> claims_{0};               // threads that want the token at once
  std::atomic<bool> stopping_{false};
  std::thread progress_;
};

}  // namespace slipstream
