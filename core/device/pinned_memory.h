#pragma once

#include <cstddef>
#include <span>

#include "base/descriptor.h"
#include "base/memory.h"
#include "device/device.h"

namespace slipstream {

/// Host memory that is registered with a device. It is a mapping of a memfd, so other processes of
/// the host can map it too. Registering 1 GiB takes about 0.5 s, most of which is the allocation of
/// pages, so memory is registered once and reused. The size is rounded up to whole pages.
class PinnedMemory {
 public:
  PinnedMemory(Device& device, std::size_t num_bytes);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  /// Blocks while a stream of the device waits for a word.
  ~PinnedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {mapping_.data(), mapping_.size()};
  }
  [[nodiscard]] int memory_fd() const noexcept { return fd_.get(); }
  /// The address that the device uses for a place in this memory.
  [[nodiscard]] DeviceAddress address_of(const void* place) const noexcept {
    const auto* byte = static_cast<const std::byte*>(place);
    return address_ + static_cast<std::size_t>(byte - mapping_.data());
  }

 private:
  Device& device_;
  Descriptor fd_;
  SharedMapping mapping_;
  DeviceAddress address_;
};

}  // namespace slipstream
