#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace slipstream::nccl {

/// A message that is cut into segments of equal size (the last may be shorter), and the segments
/// that were delivered so far. An empty message has one empty segment.
class Segments {
 public:
  Segments(std::uint64_t message_bytes, std::uint32_t segment_bytes)
      : message_bytes_(message_bytes),
        segment_bytes_(segment_bytes),
        delivered_(std::max<std::uint64_t>(1, (message_bytes + segment_bytes - 1) / segment_bytes)),
        missing_(delivered_.size()) {}

  [[nodiscard]] std::uint64_t message_bytes() const noexcept { return message_bytes_; }
  [[nodiscard]] std::uint64_t count() const noexcept { return delivered_.size(); }
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t index) const noexcept {
    return index * segment_bytes_;
  }
  [[nodiscard]] std::uint32_t bytes_of(std::uint64_t index) const noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(segment_bytes_, message_bytes_ - offset_of(index)));
  }
  /// Whether there is a segment with this place and size.
  [[nodiscard]] bool has(std::uint64_t offset, std::uint32_t bytes) const noexcept {
    const std::uint64_t index = offset / segment_bytes_;
    return offset % segment_bytes_ == 0 && index < count() && bytes == bytes_of(index);
  }
  [[nodiscard]] bool is_delivered(std::uint64_t index) const noexcept { return delivered_[index]; }
  void deliver(std::uint64_t index) noexcept {
    if (delivered_[index]) return;
    delivered_[index] = true;
    --missing_;
  }
  [[nodiscard]] bool complete() const noexcept { return missing_ == 0; }

 private:
  std::uint64_t message_bytes_;
  std::uint32_t segment_bytes_;
  std::vector<bool> delivered_;
  std::uint64_t missing_;
};

}  // namespace slipstream::nccl
