#include "workers.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "comm.h"

namespace slipstream::nccl {

/// One thread, and the comms that it waits for.
class Workers::Worker {
 public:
  Worker()
      : epoll_(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1"),
        stop_(::eventfd(0, EFD_CLOEXEC), "eventfd"),
        thread_([this] { run(); }) {}
  ~Worker() {
    ended_ = true;
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(Comm& comm) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &comm;
    const std::lock_guard lock(working_);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, comm.wait_fd(), &event);
  }
  void remove(Comm& comm) {
    const std::lock_guard lock(working_);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, comm.wait_fd(), nullptr);
  }

 private:
  void run() {
    while (!ended_) {
      std::array<pollfd, 2> events{{{epoll_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
      ::poll(events.data(), events.size(), -1);
      work();
    }
  }
  void work() {
    const std::lock_guard lock(working_);
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      Comm& comm = *static_cast<Comm*>(events[static_cast<std::size_t>(i)].data.ptr);
      // A comm whose data keep coming leaves time for the others.
      for (int turns = 0; turns < kTurns && comm.help(); ++turns) {
      }
    }
  }

  static constexpr int kTurns = 8;

  Descriptor epoll_, stop_;
  std::mutex working_;  // held while comms are used
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

Workers::Workers(std::uint32_t num_threads) {
  for (std::uint32_t i = 0; i < num_threads; ++i) workers_.push_back(std::make_unique<Worker>());
}

Workers::~Workers() = default;

void Workers::add(Comm& comm) {
  if (!workers_.empty()) workers_[num_added_++ % workers_.size()]->add(comm);
}

void Workers::remove(Comm& comm) {
  for (const auto& worker : workers_) worker->remove(comm);
}

}  // namespace slipstream::nccl
