#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace slipstream {

/// The bytes delivered to each peer during the time in which segments for it waited for a stream.
class StreamSample {
 public:
  void note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes);
  void add(const StreamSample& other);
  /// Takes the value of `other` for every peer that had a higher rate there.
  void raise(const StreamSample& other);
  /// Multiplies all rates by `factor`, which lowers what is expected.
  void fade(double factor);
  void clear() { by_peer_.clear(); }
  [[nodiscard]] bool empty() const { return by_peer_.empty(); }

  /// The time in which the base would have delivered the same bytes, divided by the time needed
  /// here; 0 if they have no peer in common.
  [[nodiscard]] double gain_over(const StreamSample& base) const;

 private:
  struct Progress {
    double seconds = 0, bytes = 0;
  };
  std::vector<Progress> by_peer_;
};

}  // namespace slipstream
