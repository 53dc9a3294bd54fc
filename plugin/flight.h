#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "transport/pace.h"
#include "transport/transport.h"

namespace slipstream::nccl {

/// A segment of a message, by their numbers.
struct SegmentId {
  std::uint64_t message = 0;
  std::uint64_t index = 0;
};

/// The segments that were sent and not acknowledged, by stream, and the choice of a stream for the
/// next one. Every stream gets as many segments as it delivers: a slow one gets fewer.
class Flight {
 public:
  explicit Flight(const Link& link);

  /// A stream that should take a segment now, or kNoStream. The control stream carries segments
  /// only if no other stream is left.
  [[nodiscard]] std::uint32_t choose(TimePoint now) const;
  void sent(std::uint32_t stream, SegmentId segment, TimePoint now);
  /// Returns the segments that an acknowledgement covers for the first time. It counts all segments
  /// of the stream, and may still arrive when the stream is dead.
  std::vector<SegmentId> acknowledge(std::uint32_t stream, std::uint64_t count, TimePoint now);
  [[nodiscard]] const std::deque<SegmentId>& of(std::uint32_t stream) const {
    return streams_[stream].unacknowledged;
  }

 private:
  struct Stream {
    std::deque<SegmentId> unacknowledged;
    std::uint64_t acknowledged = 0;
    Pace pace;
  };

  const Link& link_;
  std::vector<Stream> streams_;
  std::vector<std::uint32_t> bulk_;  // the streams without the control stream
};

}  // namespace slipstream::nccl
