#pragma once

#include <cstddef>
#include <map>
#include <span>

#include "base/descriptor.h"
#include "base/memory.h"
#include "device/device.h"

namespace slipstream {

/// The memory of a fake device, and the host memory that is registered with it. Not thread-safe.
///
/// Device memory is mapped twice: at its address no access is allowed, so the host faults where it
/// would on a machine with a GPU, and the device uses the other mapping. No address is given out
/// twice. New memory is full of kNewByte, freed memory of kFreedByte.
class FakeMemory {
 public:
  static constexpr std::byte kNewByte{0xcd}, kFreedByte{0xdb};

  explicit FakeMemory(std::size_t num_bytes);
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;
  ~FakeMemory();

  DeviceAddress allocate(std::size_t num_bytes);
  void free(DeviceAddress memory);
  DeviceAddress register_host(std::span<std::byte> memory);
  void unregister_host(std::byte* memory);
  /// What register_host() returns for this memory.
  [[nodiscard]] static DeviceAddress device_address_of(const void* memory);

  /// Where the device finds its own memory; nullptr if a part of it is not allocated.
  [[nodiscard]] std::byte* device_bytes(DeviceAddress address, std::size_t num_bytes) const;
  /// The same for registered host memory by its device address.
  [[nodiscard]] std::byte* host_bytes(DeviceAddress address, std::size_t num_bytes) const;
  [[nodiscard]] bool is_registered(const std::byte* memory, std::size_t num_bytes) const;

 private:
  using Ranges = std::map<DeviceAddress, std::size_t>;  ///< sizes by address

  [[nodiscard]] std::byte* private_bytes(DeviceAddress address) const;

  Descriptor fd_;
  SharedMapping mapping_;
  void* forbidden_;
  std::size_t num_used_ = 0;
  Ranges allocated_;
  Ranges registered_;  ///< by the host's address
};

}  // namespace slipstream
