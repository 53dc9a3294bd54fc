#pragma once

#include <utility>

#include "device/device.h"
#include "slipstream/error.h"

namespace slipstream {

/// Owns a stream or an event of a device and destroys it.
template <typename Handle>
class Owned {
 public:
  Owned(Device& device, Handle handle) : device_(&device), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), handle_(other.handle_) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (device_ == nullptr) return;
    try {
      device_->destroy(handle_);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a failed device owns nothing
    }
  }

  [[nodiscard]] Handle get() const noexcept { return handle_; }

 private:
  Device* device_;
  Handle handle_;
};

using OwnedStream = Owned<StreamHandle>;
using OwnedEvent = Owned<EventHandle>;

}  // namespace slipstream
