#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "transport/frame.h"

namespace slipstream {

/// The sending half of a stream. It writes frames to a non-blocking socket and holds back at most
/// one frame that the kernel accepted partly; its payload is held by reference.
class FrameWriter {
 public:
  /// False after the kernel accepted less than it was given, until resume().
  [[nodiscard]] bool ready() const noexcept { return !blocked_ && error_ == 0; }
  /// Accepts the whole frame with its payload, or returns false and accepts nothing.
  bool send(int fd, const Frame& frame, std::span<const std::byte> payload);
  /// Writes the held frame once the socket has room again. Returns whether ready() became true.
  bool resume(int fd);
  /// Copies the held part of a payload in `memory`, which is not read any more afterwards.
  void forget(std::span<const std::byte> memory);
  /// errno of the write that failed for good; 0 if none has.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  /// Bytes of the held frame that one sendmsg() accepted; 0 if the socket is full or broken.
  std::size_t write(int fd);
  [[nodiscard]] std::size_t held_bytes() const noexcept { return sizeof(Frame) + payload_.size(); }

  Frame frame_{};
  std::span<const std::byte> payload_;
  std::size_t written_ = 0;  // written bytes of the frame and its payload
  bool blocked_ = false;     // until the socket has room
  bool holding_ = false;     // whether a frame is partly written
  int error_ = 0;
  std::vector<std::byte> owned_;  // a held payload whose memory was forgotten
};

}  // namespace slipstream
