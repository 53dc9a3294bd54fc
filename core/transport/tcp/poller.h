#pragma once

#include <cstdint>
#include <vector>

#include "base/descriptor.h"
#include "transport/transport.h"

namespace slipstream {

/// Something that goes on when its descriptor is readable or writable.
class Watcher {
 public:
  virtual ~Watcher() = default;
  /// Works off what the `events` of epoll announce (none of them when it asked to be called
  /// again), a bounded amount of it. True when it left something: it is called in the next poll().
  virtual bool on_events(std::uint32_t events, Sink& sink) = 0;
};

/// One epoll descriptor. Edge-triggered, so that waiting for room in a socket costs no system call;
/// hence a watcher must read until the socket is empty, or ask to be called again.
class Poller {
 public:
  Poller();

  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  /// Calls `watcher` for events on `fd` until unwatch(fd), which must come before close(fd).
  void watch(int fd, Watcher& watcher);
  void unwatch(int fd) noexcept;
  /// The watcher of `fd` is called in the next poll(), whatever happens until then.
  void call_again(int fd);
  /// Whether a watcher waits to be called although fd() may show nothing.
  [[nodiscard]] bool pending() const noexcept { return !queue_.empty(); }
  /// Calls whom it concerns, never blocks. True when somebody was called.
  bool poll(Sink& sink);

 private:
  struct Entry {
    Watcher* watcher = nullptr;
    std::uint32_t events = 0;  // not yet handed on
    bool queued = false;
  };
  void collect();
  void dispatch(int fd, Sink& sink);
  [[nodiscard]] Entry& entry(int fd) { return entries_[static_cast<std::size_t>(fd)]; }

  Descriptor epoll_;
  std::vector<Entry> entries_;  // by descriptor
  std::vector<int> queue_;      // descriptors whose watcher is to be called
  std::vector<int> batch_;      // those of the poll() that is going on
};

}  // namespace slipstream
