#pragma once

#include <cstdint>

#include "base/clock.h"

namespace slipstream {

/// Decides which rank chooses the number of streams for all ranks. It is a rank that waits for
/// streams itself: the lowest of the ranks that waited first. Another rank takes over only if it
/// has waited for long without hearing from the leader. Time in which no rank waits does not count,
/// so after an evaluation or a checkpoint the same rank continues, and so does its trial. This
/// class is pure arithmetic, without a clock.
class StreamLead {
 public:
  /// Waiting time after which a silent leader is replaced.
  static constexpr Nanoseconds kLead = 10s;

  explicit StreamLead(std::uint32_t rank) : rank_(rank) {}

  /// Records that this rank has waited for streams for `time`, until `now`.
  void waited(TimePoint now, Nanoseconds time);
  /// Handles another rank's statement that it decides. Returns whether this rank accepts it as
  /// leader.
  bool hears(TimePoint now, std::uint32_t rank);
  /// Whether this rank decides.
  [[nodiscard]] bool leads() const { return unheard_ >= kLead; }
  /// The rank that decides, if it is not this rank.
  [[nodiscard]] std::uint32_t leader() const { return leader_; }

 private:
  const std::uint32_t rank_;
  std::uint32_t leader_ = 0;
  TimePoint waited_{}, heard_{};  // last times of these events
  Nanoseconds unheard_ = kLead;   // time spent waiting since the leader was last heard
};

}  // namespace slipstream
