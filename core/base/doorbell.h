#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/memory.h"

namespace slipstream {

/// The word that one rank sleeps on, in shared memory so that the other ranks of its host ring it.
struct BellWord {
  enum State : std::uint32_t { kAwake = 0, kInFutex = 1, kInPoll = 2 };
  std::atomic<std::uint32_t> state{kAwake};
};

/// Rings a rank: one load while the rank is awake, one system call while it sleeps.
/// Whatever it should find must have been published (release) before ring().
class Bell {
 public:
  Bell(BellWord* word, int event_fd) : word_(word), event_fd_(event_fd) {}
  void ring() const noexcept;

 private:
  BellWord* word_;
  int event_fd_;  // not owned
};

/// Where the driver of a rank sleeps. Contract: arm(), look once more for work, then sleep() or
/// disarm(); a ring() after arm() ends the sleep, so nothing is missed.
class Doorbell {
 public:
  Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  [[nodiscard]] Bell bell() const noexcept { return {word_, event_fd_.get()}; }
  /// A memfd of one page that begins with the BellWord, for ranks of the same host.
  [[nodiscard]] int memory_fd() const noexcept { return memory_fd_.get(); }
  /// Readable when rung while the driver sleeps in poll; also for ranks of the same host.
  [[nodiscard]] int event_fd() const noexcept { return event_fd_.get(); }

  /// `in_poll`: the driver will sleep in poll() on event_fd(), else on the futex.
  void arm(bool in_poll) noexcept;
  void disarm() noexcept;
  /// Sleeps on the futex while armed, until a ring or wake() or until `until`; may return early.
  void sleep(TimePoint until) noexcept;
  /// Ends every sleep, armed or not, and the next one that was armed before. Any thread.
  void wake() noexcept;

 private:
  Descriptor memory_fd_;
  Descriptor event_fd_;
  SharedMapping memory_;
  BellWord* word_;
  std::atomic<bool> in_poll_{false};
};

/// The bell of another rank, mapped from the descriptors that it sent.
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
