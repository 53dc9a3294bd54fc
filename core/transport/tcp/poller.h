#pragma once

#include <cstdint>
#include <vector>

#include "base/descriptor.h"
#include "transport/transport.h"

namespace slipstream {

/// An object that continues when its descriptor is readable or writable.
class Watcher {
 public:
  virtual ~Watcher() = default;
  /// Handles a bounded part of the work that epoll's `events` announce; `events` is 0 if the
  /// watcher asked to be called again. Returns true if work is left; then it is called in the next
  /// poll().
  virtual bool on_events(std::uint32_t events, Sink& sink) = 0;
};

/// One epoll descriptor. It is edge-triggered, so that waiting for room in a socket costs no system
/// call. Therefore a watcher must read until the socket is empty, or ask to be called again.
class Poller {
 public:
  Poller();

  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  /// Calls `watcher` for events on `fd` until unwatch(fd), which must be called before close(fd).
  void watch(int fd, Watcher& watcher);
  void unwatch(int fd) noexcept;
  /// Calls the watcher of `fd` in the next poll(), even without an event.
  void call_again(int fd);
  /// Whether a watcher must be called although fd() may not be readable.
  [[nodiscard]] bool pending() const noexcept { return !queue_.empty(); }
  /// Calls all watchers that have events. Never blocks. Returns whether any was called.
  bool poll(Sink& sink);

 private:
  struct Entry {
    Watcher* watcher = nullptr;
    std::uint32_t events = 0;  // not handled yet
    bool queued = false;
  };
  void collect();
  void dispatch(int fd, Sink& sink);
  [[nodiscard]] Entry& entry(int fd) { return entries_[static_cast<std::size_t>(fd)]; }

  Descriptor epoll_;
  std::vector<Entry> entries_;  // by descriptor
  std::vector<int> queue_;      // descriptors whose watchers must be called
  std::vector<int> batch_;      // descriptors of the current poll()
};

}  // namespace slipstream
