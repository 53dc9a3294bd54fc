#include "workers.h"

#include <algorithm>
#include <chrono>

#include "tiny.h"

namespace slipstream::kernels {
namespace {

// Both are chosen by hand, not measured.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr int kSpinsBeforeYield = 2000;

constexpr std::uint64_t kOpen = std::uint64_t{1} << 31;
constexpr std::uint64_t kJoined = kOpen - 1;
constexpr std::uint32_t piece_of(std::uint64_t state) {
  return static_cast<std::uint32_t>(state >> 32);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Workers::Workers(std::size_t threads) : shares_(std::max(threads, std::size_t{1})) {
  for (std::size_t i = 1; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
}

Workers::~Workers() {
  {
    const std::scoped_lock lock(mutex_);
    closing_.store(true);
  }
  called_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::share(std::size_t parts, const std::function<void(std::size_t)>& work) {
  if (threads_.empty() || parts < 2) {
    for (std::size_t part = 0; part < parts; ++part) work(part);
    return;
  }
  work_ = &work;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].next.store(parts * i / shares_.size(), std::memory_order_relaxed);
    shares_[i].end = parts * (i + 1) / shares_.size();
  }
  const std::uint64_t piece = piece_of(state_.load(std::memory_order_relaxed)) + std::uint64_t{1};
  state_.store(piece << 32 | kOpen);
  if (asleep_.load() > 0) {
    {
      const std::scoped_lock lock(mutex_);
    }  // a thread about to sleep has seen the new state, or will
    called_.notify_all();
  }
  take_parts(0);
  state_.fetch_and(~kOpen);
  for (int spins = 0; (state_.load(std::memory_order_acquire) & kJoined) != 0; ++spins) {
    if (spins < kSpinsBeforeYield) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Workers::take_parts(std::size_t thread) {
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[(thread + i) % shares_.size()];
    for (std::size_t part = share.next++; part < share.end; part = share.next++) (*work_)(part);
  }
}

void Workers::serve(std::size_t thread) {
  const TinyAsZero tiny;
  std::uint32_t seen = 0;
  while (!closing_.load(std::memory_order_relaxed)) {
    const std::uint64_t state = state_.load(std::memory_order_acquire);
    if (piece_of(state) == seen) {
      wait_for(seen);
      continue;
    }
    if ((state & kOpen) != 0 && !join(state, thread)) continue;  // the state changed meanwhile
    seen = piece_of(state);
  }
}

bool Workers::join(std::uint64_t state, std::size_t thread) {
  if (!state_.compare_exchange_strong(state, state + 1)) return false;
  take_parts(thread);
  state_.fetch_sub(1, std::memory_order_release);
  return true;
}

void Workers::wait_for(std::uint32_t seen) {
  const auto called = [&] { return piece_of(state_.load()) != seen || closing_.load(); };
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (called()) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  std::unique_lock lock(mutex_);
  ++asleep_;
  called_.wait(lock, called);
  --asleep_;
}

}  // namespace slipstream::kernels
