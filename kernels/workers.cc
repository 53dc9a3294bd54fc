#include "workers.h"

#include <chrono>

namespace slipstream::kernels {
namespace {

constexpr auto kSpin = std::chrono::microseconds(200);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Workers::Workers(std::size_t threads) {
  for (std::size_t i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

Workers::~Workers() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    piece_.fetch_add(1);
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
  parts_ = parts;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(threads_.size(), std::memory_order_relaxed);
  {
    const std::scoped_lock lock(mutex_);
    piece_.fetch_add(1, std::memory_order_release);
  }
  called_.notify_all();
  take_parts();
  while (busy_.load(std::memory_order_acquire) != 0) pause();
}

void Workers::take_parts() {
  for (std::size_t part = next_.fetch_add(1); part < parts_; part = next_.fetch_add(1)) {
    (*work_)(part);
  }
}

void Workers::serve() {
  std::uint64_t seen = 0;
  while (true) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    while (piece_.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < until) {
      for (int i = 0; i < 32 && piece_.load(std::memory_order_acquire) == seen; ++i) pause();
    }
    if (piece_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      called_.wait(lock, [&] { return piece_.load(std::memory_order_acquire) != seen; });
    }
    seen = piece_.load(std::memory_order_acquire);
    if (closing_) return;
    take_parts();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace slipstream::kernels
