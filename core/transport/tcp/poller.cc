#include "transport/tcp/poller.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1") {}

void Poller::watch(int fd, Watcher& watcher) {
  if (static_cast<std::size_t>(fd) >= entries_.size()) {
    entries_.resize(static_cast<std::size_t>(fd) + 1);
  }
  entry(fd) = {.watcher = &watcher};
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    fail(ErrorKind::kInternal, "epoll_ctl failed: ", std::strerror(errno));
  }
}

void Poller::unwatch(int fd) noexcept {
  entry(fd) = {};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Poller::call_again(int fd) {
  if (entry(fd).queued) return;
  entry(fd).queued = true;
  queue_.push_back(fd);
}

bool Poller::poll(Sink& sink) {
  collect();
  if (queue_.empty()) return false;
  std::swap(batch_, queue_);
  for (const int fd : batch_) dispatch(fd, sink);
  batch_.clear();
  return true;
}

void Poller::collect() {
  std::array<epoll_event, 128> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    entry(event.data.fd).events |= event.events;
    call_again(event.data.fd);
  }
}

void Poller::dispatch(int fd, Sink& sink) {
  Watcher* const watcher = entry(fd).watcher;
  if (watcher == nullptr || !entry(fd).queued) return;  // unwatched after it was queued
  entry(fd).queued = false;
  const bool again = watcher->on_events(std::exchange(entry(fd).events, 0), sink);
  if (again && entry(fd).watcher == watcher) call_again(fd);
}

}  // namespace slipstream
