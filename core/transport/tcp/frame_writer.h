#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/frame.h"
#include "transport/tcp/byte_channel.h"

namespace slipstream {

/// The sending half of a stream. It writes frames to a channel and holds back at most one frame
/// that the channel accepted partly; its payload is held by reference.
class FrameWriter {
 public:
  explicit FrameWriter(ByteChannel& channel) : channel_(channel) {}

  /// False after the channel found no room for all bytes in the socket, until resume().
  [[nodiscard]] bool ready() const noexcept { return !blocked_ && !failed(); }
  /// Whether a frame is partly written.
  [[nodiscard]] bool holds() const noexcept { return holding_; }
  /// Accepts the whole frame with its payload, or returns false and accepts nothing.
  bool send(const Frame& frame, std::span<const std::byte> payload);
  /// Writes the held frame once the socket has room again. Returns whether ready() became true.
  bool resume();
  /// Copies the held part of a payload in `memory`, which is not read any more afterwards.
  void forget(std::span<const std::byte> memory);
  /// Whether a write has failed for good.
  [[nodiscard]] bool failed() const noexcept { return !channel_.send_failure().empty(); }

 private:
  /// Bytes of the held frame that the channel accepts now; 0 if it is full or broken.
  std::size_t write();
  [[nodiscard]] std::size_t held_bytes() const noexcept { return sizeof(Frame) + payload_.size(); }

  ByteChannel& channel_;
  Frame frame_{};
  std::span<const std::byte> payload_;
  std::size_t written_ = 0;       // written bytes of the frame and its payload
  bool blocked_ = false;          // until the socket has room
  bool holding_ = false;          // see holds()
  std::vector<std::byte> owned_;  // a held payload whose memory was forgotten
};

}  // namespace slipstream
