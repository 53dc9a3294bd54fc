#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/fork.h"
#include "device/staging.h"
#include "engine/engine.h"

namespace slipstream {

/// A collective on device memory: its chunks on the device and in the engine.
struct StagedOperation {
  Staging* staging = nullptr;  ///< belongs to the group
  Transfer transfer{};
  std::vector<std::shared_ptr<Completion>> chunks{};

  /// Whether the engine has ended its part. The device may still copy the results.
  [[nodiscard]] bool is_exchanged() const;
  /// The error of the first chunk that has failed; nullptr if none has.
  [[nodiscard]] const Error* error() const;
};

/// Runs collectives of a group on tensors in device memory.
///
/// A tensor is cut into chunks, each of which is an operation of the engine on a slot of a staging.
/// So chunks are copied to the host, exchanged and copied back at the same time, and every
/// algorithm, codec and check of the engine applies. Messages have stagings of their own, because
/// two ranks that send to each other must not wait for each other's slots.
///
/// One thread at a time may call it, and never a thread of the engine.
class StagedGroup {
 public:
  /// `engine` and `device` must outlive it.
  StagedGroup(Engine& engine, std::shared_ptr<Group> group, Device& device, StagingOptions options);
  StagedGroup(const StagedGroup&) = delete;
  StagedGroup& operator=(const StagedGroup&) = delete;
  /// Calls close().
  ~StagedGroup() { close(); }

  /// Closes the group, and blocks until neither the device nor the engine uses a slot. Idempotent;
  /// does nothing in a forked child.
  void close() noexcept;
  /// Begins a collective after all commands that `current` has now. Blocks while the queue of the
  /// device is full. Input and output of the request are addresses of device memory, which must
  /// exist until the transfer is done; a residual is host memory. Both ranks of a message must pass
  /// the same count. Throws Error(kUsage) for a barrier, for a message from any rank and for an
  /// all_to_all with counts, and the error of an earlier operation that has failed.
  StagedOperation submit(const Request& request, StreamHandle current);
  /// Makes a stream wait until the results are in device memory.
  static void wait(StreamHandle stream, const StagedOperation& operation) {
    operation.staging->wait(stream, operation.transfer);
  }
  [[nodiscard]] static bool is_done(const StagedOperation& operation) {
    return operation.staging->is_done(operation.transfer);
  }

 private:
  Staging& staging_for(Collective collective);
  void note_ended();

  const Origin origin_;
  Engine& engine_;
  std::shared_ptr<Group> group_;
  Device& device_;
  StagingOptions options_;
  std::unique_ptr<Staging> collectives_, sends_, receives_;  // made at their first use
  std::deque<std::shared_ptr<Completion>> in_flight_;
  std::optional<Error> failure_;
};

}  // namespace slipstream
