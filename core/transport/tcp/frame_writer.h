#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "transport/frame.h"

namespace slipstream {

/// The sending half of a stream: writes frames to a non-blocking socket and holds back at most one
/// that the kernel has taken in part, its payload by reference.
class FrameWriter {
 public:
  /// False from the moment the kernel took less than it was given until resume().
  [[nodiscard]] bool ready() const noexcept { return !blocked_ && error_ == 0; }
  /// Takes the frame and its payload, whole, or returns false and takes nothing.
  bool send(int fd, const Frame& frame, std::span<const std::byte> payload);
  /// The socket has room again: writes what was held back. True when ready() became true.
  bool resume(int fd);
  /// What is held back of a payload in `memory` is copied: that memory is not read any more.
  void forget(std::span<const std::byte> memory);
  /// errno of the write that failed, for good; 0 while none has.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  /// Bytes of the held frame that one sendmsg() took; 0 when the socket is full or broken.
  std::size_t write(int fd);
  [[nodiscard]] std::size_t held_bytes() const noexcept { return sizeof(Frame) + payload_.size(); }

  Frame frame_{};
  std::span<const std::byte> payload_;
  std::size_t written_ = 0;  // bytes of the frame and its payload
  bool blocked_ = false;     // until the socket has room
  bool holding_ = false;     // whether a frame is written in part
  int error_ = 0;
  std::vector<std::byte> owned_;  // a held payload whose memory was forgotten
};

}  // namespace slipstream
