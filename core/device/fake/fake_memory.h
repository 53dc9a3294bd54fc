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
/// Device memory is mapped twice. The mapping at its address allows no access, so the host faults
/// as it would with a GPU; the device uses the other mapping. Addresses are never reused. New
/// memory is filled with kNewByte, and freed memory with kFreedByte.
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

  /// The device's mapping of device memory; nullptr if a part of it is not allocated.
  [[nodiscard]] std::byte* device_bytes(DeviceAddress address, std::size_t num_bytes) const;
  /// Registered host memory by its device address; nullptr if a part of it is not registered.
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
