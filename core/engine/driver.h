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

/// What the driver drives. All of it runs under the token, but for has_work().
class Driven {
 public:
  virtual ~Driven() = default;
  /// Does what can be done now, without blocking. True when anything was done.
  virtual bool poll() = 0;
  /// Whether operations are in flight or submitted. Any thread.
  [[nodiscard]] virtual bool has_work() const noexcept = 0;
  /// Whether what is awaited may come within microseconds, so that it pays to spin. Any thread.
  [[nodiscard]] virtual bool is_urgent() const noexcept = 0;
  /// When poll() must be called although nothing arrives.
  [[nodiscard]] virtual TimePoint next_event() const = 0;
  /// Descriptors that become readable when there is work; none: the doorbell is rung.
  [[nodiscard]] virtual const std::vector<int>& wait_fds() const = 0;
};

/// Decides which thread drives. One at a time holds the token and may touch the engine: a caller
/// inside wait() takes it where it is free, so that a small operation needs no other thread; the
/// progress thread has it otherwise. Nobody burns a core: a driver spins for `spin`, then sleeps on
/// the doorbell.
class Driver {
 public:
  struct Options {
    Nanoseconds spin = 100us;  ///< before sleeping: about what going to sleep and waking cost
    bool yields = false;       ///< give the core away while spinning (more ranks than cores)
  };

  Driver(Driven& driven, Doorbell& doorbell, Options options);
  ~Driver() { stop(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Before start().
  void set_yields(bool yields) { options_.yields = yields; }
  void start();  ///< the progress thread begins
  void stop();   ///< and is joined

  /// There is something new to do: wakes who drives. `returns_soon`: the caller will wait() at
  /// once, so what can be done now is done in this thread, and nobody is woken for the rest.
  void kick(bool returns_soon);

  /// Blocks until `completion` is done or `until`, driving if nobody else does. True when done.
  /// `returns_soon`: the caller will drive again at once, so nobody else need be woken to do so.
  bool wait(Completion& completion, TimePoint until, bool returns_soon = false);

  /// Runs `action` under the token, with the driver out of the way.
  void run_exclusively(const std::function<void()>& action);
  /// For an action that has to wait: sleeps until anything arrives, at most for `most`.
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
