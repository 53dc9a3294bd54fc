#pragma once

#include <cstdint>

#include "base/clock.h"

namespace slipstream {

/// Which rank decides for all how many streams carry segments. It is one that waits for streams
/// itself: the lowest of those that did so first, until others have waited for long without a word
/// of it. Time in which nobody waits does not count: after an evaluation or a checkpoint the same
/// rank goes on, and so does its trial. Pure arithmetic: no clock.
class StreamLead {
 public:
  static constexpr Nanoseconds kLead = 10s;  ///< of a rank that has said that it decides

  explicit StreamLead(std::uint32_t rank) : rank_(rank) {}

  /// This rank has waited for streams for so long, until `now`.
  void waited(TimePoint now, Nanoseconds time);
  /// Another rank says that it decides. Returns whether this rank agrees, and follows it.
  bool hears(TimePoint now, std::uint32_t rank);
  /// Whether this rank decides.
  [[nodiscard]] bool leads() const { return unheard_ >= kLead; }
  /// Which rank decides where this one does not.
  [[nodiscard]] std::uint32_t leader() const { return leader_; }

 private:
  const std::uint32_t rank_;
  std::uint32_t leader_ = 0;
  TimePoint waited_{}, heard_{};  // the last time
  Nanoseconds unheard_ = kLead;   // of waiting since the leader was heard
};

}  // namespace slipstream
