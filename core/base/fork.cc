#include "base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

namespace slipstream {
namespace {

// The one process-wide list of the engine: pthread_atfork has no argument to hand it down.
struct OpenDescriptors {
  std::mutex mutex;  // held across fork(), so that the child finds the set whole
  std::set<int> fds;
  std::atomic<bool> forked{false};
};

OpenDescriptors& open_descriptors() {
  static OpenDescriptors* const instance = new OpenDescriptors;  // outlives static destructors
  return *instance;
}

void before_fork() { open_descriptors().mutex.lock(); }
void after_fork_in_parent() { open_descriptors().mutex.unlock(); }

void after_fork_in_child() {
  OpenDescriptors& open = open_descriptors();
  if (!open.fds.empty()) open.forked.store(true, std::memory_order_relaxed);
  for (const int fd : open.fds) ::close(fd);
  open.fds.clear();
  open.mutex.unlock();
}

}  // namespace

void close_on_fork(int fd) {
  static const int registered =
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)registered;
  const std::scoped_lock lock(open_descriptors().mutex);
  open_descriptors().fds.insert(fd);
}

void forget_on_fork(int fd) noexcept {
  const std::scoped_lock lock(open_descriptors().mutex);
  open_descriptors().fds.erase(fd);
}

bool is_forked_child() noexcept {
  return open_descriptors().forked.load(std::memory_order_relaxed);
}

}  // namespace slipstream
