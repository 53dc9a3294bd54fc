#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/hmac.h"
#include "send_comm.h"

namespace slipstream::nccl {

/// The attempts to connect that go on, by random numbers. A handle comes from another rank, over a
/// network that NCCL does not protect, so it has a number in place of a pointer.
class Attempts {
 public:
  /// Keeps an attempt, and returns its number, which is not 0.
  std::uint64_t keep(std::unique_ptr<SendComm> comm) {
    const std::lock_guard lock(mutex_);
    std::uint64_t number = 0;
    while (number == 0 || comms_.contains(number)) number = draw();
    comms_[number] = std::move(comm);
    return number;
  }
  /// Returns the attempt with this number, which ends its keeping; nullptr if there is none.
  std::unique_ptr<SendComm> take(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    auto found = comms_.extract(number);
    return found.empty() ? nullptr : std::move(found.mapped());
  }

 private:
  static std::uint64_t draw() {
    const Nonce nonce = random_nonce();
    std::uint64_t number = 0;
    std::memcpy(&number, nonce.data(), sizeof number);
    return number;
  }

  std::mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<SendComm>> comms_;  // guarded by mutex_
};

}  // namespace slipstream::nccl
