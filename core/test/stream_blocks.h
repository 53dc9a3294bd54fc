#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/owned.h"
#include "device/pinned_memory.h"

namespace slipstream::test {

struct StreamBlock {
  DeviceAddress address = 0;
  std::size_t num_bytes = 0;  ///< in use
};

/// Device memory as PyTorch's caching allocator gives it: a stream may reuse a block as soon as it
/// is given back, because the commands of the stream are executed in order.
class StreamBlocks {
 public:
  /// `num_pinned` bytes of host memory are for all copies together.
  StreamBlocks(Device& device, std::size_t num_streams, std::size_t num_pinned);

  [[nodiscard]] std::size_t num_streams() const { return streams_.size(); }
  [[nodiscard]] StreamHandle stream(std::size_t index) const { return streams_[index].get(); }

  StreamBlock take(std::size_t stream, std::size_t num_bytes);
  /// The next commands of the stream may use the block. If `scribbles`, they overwrite it at once.
  void give_back(std::size_t stream, const StreamBlock& block, bool scribbles);
  /// Copies in stream order. The host memory is kept until the end.
  void upload(std::size_t stream, DeviceAddress target, std::span<const std::byte> bytes);
  /// Where the bytes will be when the stream has executed the copy.
  std::byte* download(std::size_t stream, DeviceAddress source, std::size_t num_bytes);
  /// An event after all commands that the stream has now.
  EventHandle mark(std::size_t stream);
  void wait(std::size_t stream, EventHandle event) {
    device_.wait_event(streams_[stream].get(), event);
  }
  void synchronize();

 private:
  std::byte* pin(std::size_t num_bytes);

  Device& device_;
  PinnedMemory pinned_;
  std::size_t num_pinned_used_ = 0;
  std::vector<OwnedStream> streams_;
  std::vector<OwnedEvent> marks_;
  std::vector<std::multimap<std::size_t, DeviceAddress>> free_;  ///< by stream, by size
};

}  // namespace slipstream::test
