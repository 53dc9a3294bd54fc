#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "nccl_net.h"

namespace slipstream::nccl {

class Comm;

/// One send or receive, as NCCL sees it.
struct Request {
  enum class State : std::uint8_t { kFree, kPending, kDone };

  Comm* comm = nullptr;
  std::span<std::byte> memory;
  std::size_t bytes = 0;  ///< sent or received, once it is done
  std::atomic<State> state = State::kFree;

  void complete(std::size_t moved) noexcept {
    bytes = moved;
    state.store(State::kDone, std::memory_order_release);
  }
};

/// The requests of a comm, numbered from 0 in the order of their submission. NCCL's thread submits
/// and releases them, and the driver, which may be another thread, takes and completes them.
class Requests {
 public:
  explicit Requests(Comm& comm) {
    for (Request& slot : slots_) slot.comm = &comm;
  }

  /// Returns nullptr if the request 32 numbers before this one was not released yet.
  Request* submit(std::span<std::byte> memory) noexcept {
    const std::uint64_t number = submitted_.load(std::memory_order_relaxed);
    Request& slot = (*this)[number];
    if (slot.state.load(std::memory_order_acquire) != Request::State::kFree) return nullptr;
    slot.memory = memory;
    slot.state.store(Request::State::kPending, std::memory_order_relaxed);
    submitted_.store(number + 1, std::memory_order_release);
    return &slot;
  }
  /// Requests that were submitted so far.
  [[nodiscard]] std::uint64_t submitted() const noexcept {
    return submitted_.load(std::memory_order_acquire);
  }
  [[nodiscard]] Request& operator[](std::uint64_t number) noexcept {
    return slots_[number % slots_.size()];
  }

 private:
  std::array<Request, kMaxRequests> slots_;
  std::atomic<std::uint64_t> submitted_ = 0;
};

}  // namespace slipstream::nccl
