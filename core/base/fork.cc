#include "base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

#include "slipstream/error.h"

namespace slipstream {
namespace {

// The engine's only process-wide list: pthread_atfork has no argument through which it could be
// passed.
struct OpenDescriptors {
  std::mutex mutex;  // held across fork(), so that the child finds the set complete
  std::set<int> fds;
  std::atomic<std::uint64_t> num_forks{0};  // between the first process and this one

  OpenDescriptors();
};

OpenDescriptors& open_descriptors() {
  static OpenDescriptors* const instance = new OpenDescriptors;  // must outlive static destructors
  return *instance;
}

void before_fork() { open_descriptors().mutex.lock(); }
void after_fork_in_parent() { open_descriptors().mutex.unlock(); }

void after_fork_in_child() {
  OpenDescriptors& open = open_descriptors();
  open.num_forks.fetch_add(1, std::memory_order_relaxed);
  for (const int fd : open.fds) ::close(fd);
  open.fds.clear();
  open.mutex.unlock();
}

OpenDescriptors::OpenDescriptors() {
  ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

std::uint64_t num_forks() noexcept {
  return open_descriptors().num_forks.load(std::memory_order_relaxed);
}

}  // namespace

void close_on_fork(int fd) {
  const std::scoped_lock lock(open_descriptors().mutex);
  open_descriptors().fds.insert(fd);
}

void forget_on_fork(int fd) noexcept {
  const std::scoped_lock lock(open_descriptors().mutex);
  open_descriptors().fds.erase(fd);
}

Origin::Origin() noexcept : num_forks_(num_forks()) {}

bool Origin::is_here() const noexcept { return num_forks_ == num_forks(); }

void Origin::check() const {
  if (is_here()) return;
  fail(ErrorKind::kUsage,
       "the engine was used in a forked child process, but it belongs to the parent; start "
       "processes that communicate by 'spawn' instead of 'fork', or initialise Slipstream after "
       "the fork");
}

}  // namespace slipstream
