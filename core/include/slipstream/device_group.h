#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "slipstream/request.h"

namespace slipstream {

class Engine;
class Group;
class RuntimeParts;

/// A stream of the CUDA driver, as a number.
using CudaStream = std::uintptr_t;

struct DeviceOptions {
  int ordinal = 0;                     ///< of the GPU, among those that CUDA_VISIBLE_DEVICES leaves
  std::uint32_t num_slots = 8;         ///< a power of two
  std::uint64_t slot_bytes = 4 << 20;  ///< 512 KiB to 4 MiB
  /// The CUDA driver, as dlopen() finds it.
  std::string library = "libcuda.so.1";
};

/// A collective on the memory of a GPU. Copies refer to the same operation.
class DeviceHandle {
 public:
  struct Parts;
  explicit DeviceHandle(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}

  /// Makes the stream wait until the results are in the GPU's memory. Does not block.
  void wait_on(CudaStream stream) const;
  /// Whether the GPU uses the operation's memory no more: it has the results, or has failed.
  [[nodiscard]] bool done() const;
  /// Blocks until the engine has ended its part, or for `timeout`. Returns whether it has.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout) const;
  /// The first chunk that has not ended, how long it has waited, and for which ranks, in words.
  [[nodiscard]] std::string describe() const;
  /// Throws the error of an operation that has failed.
  void check() const;

 private:
  std::shared_ptr<Parts> parts_;
};

/// The collectives of a group on the memory of one GPU, staged through host memory. It keeps the
/// engine alive. Its destructor closes the group. Any thread may call its functions.
class DeviceGroup {
 public:
  /// Throws Error(kUnsupported) without a driver, or if the GPU cannot wait for words of host
  /// memory.
  DeviceGroup(std::shared_ptr<RuntimeParts> parts, Engine& engine, std::shared_ptr<Group> group,
              const DeviceOptions& options);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  /// Closes the group, and blocks until the GPU uses no memory of its operations. Idempotent.
  void close();
  [[nodiscard]] std::uint32_t rank() const;
  [[nodiscard]] std::uint32_t size() const;

  /// Begins a collective after all commands that `current` has now; input and output are addresses
  /// of the GPU's memory, which must exist until the operation is done. Blocks only while the GPU's
  /// queue is full. Throws the error of an earlier operation that has failed.
  DeviceHandle submit(const Request& request, CudaStream current);

 private:
  friend struct DeviceHandle::Parts;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace slipstream
