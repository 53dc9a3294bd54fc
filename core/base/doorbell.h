#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/memory.h"

namespace slipstream {

/// The word on which a rank sleeps. It is in shared memory, so that other ranks of the host can
/// ring.
struct BellWord {
  enum State : std::uint32_t { kAwake = 0, kInFutex = 1, kInPoll = 2 };
  std::atomic<std::uint32_t> state{kAwake};
};

/// Rings a rank. This costs one load while the rank is awake, and one system call while it sleeps.
/// The caller must publish (release) the work before it calls ring().
class Bell {
 public:
  Bell(BellWord* word, int event_fd) : word_(word), event_fd_(event_fd) {}
  void ring() const noexcept;

 private:
  BellWord* word_;
  int event_fd_;  // not owned
};

/// The place where the driver of a rank sleeps. The driver calls arm(), looks once more for work,
/// and then calls sleep() or disarm(). A ring() after arm() ends the sleep, so no work is missed.
class Doorbell {
 public:
  Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  [[nodiscard]] Bell bell() const noexcept { return {word_, event_fd_.get()}; }
  /// A memfd of one page that begins with the BellWord; ranks of the same host map it.
  [[nodiscard]] int memory_fd() const noexcept { return memory_fd_.get(); }
  /// Becomes readable if the bell is rung while the driver sleeps in poll(); ranks of the same host
  /// write to it.
  [[nodiscard]] int event_fd() const noexcept { return event_fd_.get(); }

  /// `in_poll` is true if the driver will sleep in poll() on event_fd(), and false for the futex.
  void arm(bool in_poll) noexcept;
  void disarm() noexcept;
  /// Sleeps on the futex while armed, until a ring, a wake() or the time `until`. May return early.
  void sleep(TimePoint until) noexcept;
  /// Ends a sleep, even a disarmed one, and the next sleep if it is armed already. Any thread may
  /// call it.
  void wake() noexcept;

 private:
  Descriptor memory_fd_;
  Descriptor event_fd_;
  SharedMapping memory_;
  BellWord* word_;
  std::atomic<bool> in_poll_{false};
};

/// The bell of another rank, mapped from the descriptors that the other rank sent.
class RemoteBell {
 public:
  RemoteBell(const Descriptor& memory_fd, Descriptor event_fd);
  void ring() const noexcept { Bell(word(), event_fd_.get()).ring(); }

 private:
  [[nodiscard]] BellWord* word() const noexcept {
    return reinterpret_cast<BellWord*>(memory_.data());
  }
  Descriptor event_fd_;
  SharedMapping memory_;
};

}  // namespace slipstream
