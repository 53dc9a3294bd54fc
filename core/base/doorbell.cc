#include "base/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "base/futex.h"

namespace slipstream {
namespace {
constexpr std::size_t kPageBytes = 4096;
}  // namespace

void Bell::ring() const noexcept {
  // Pairs with the fence of arm(): either the driver sees the published work, or we see that it is
  // armed.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (word_->state.load(std::memory_order_relaxed) == BellWord::kAwake) return;
  switch (word_->state.exchange(BellWord::kAwake, std::memory_order_acq_rel)) {
    case BellWord::kInFutex:
      futex_wake(word_->state);
      break;
    case BellWord::kInPoll: {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(event_fd_, &one, sizeof one);
      break;
    }
    default:
      break;
  }
}

Doorbell::Doorbell()
    : memory_fd_(make_memory_fd("slipstream-bell", kPageBytes)),
      event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"),
      memory_(memory_fd_.get(), kPageBytes),
      word_(new (memory_.data()) BellWord) {}

void Doorbell::arm(bool in_poll) noexcept {
  in_poll_.store(in_poll, std::memory_order_relaxed);
  word_->state.store(in_poll ? BellWord::kInPoll : BellWord::kInFutex, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Doorbell::disarm() noexcept {
  word_->state.store(BellWord::kAwake, std::memory_order_relaxed);
  if (!in_poll_.load(std::memory_order_relaxed)) return;
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto taken = ::read(event_fd_.get(), &rings, sizeof rings);
}

void Doorbell::sleep(TimePoint until) noexcept {
  futex_wait(word_->state, BellWord::kInFutex, until);
}

void Doorbell::wake() noexcept {
  word_->state.store(BellWord::kAwake, std::memory_order_release);
  futex_wake(word_->state);
  if (!in_poll_.load(std::memory_order_relaxed)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event_fd_.get(), &one, sizeof one);
}

RemoteBell::RemoteBell(const Descriptor& memory_fd, Descriptor event_fd)
    : event_fd_(std::move(event_fd)), memory_(memory_fd.get(), kPageBytes) {}

}  // namespace slipstream
