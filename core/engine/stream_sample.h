#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace slipstream {

/// What was delivered to each peer in the time in which segments to it waited for a stream.
class StreamSample {
 public:
  void note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes);
  void add(const StreamSample& other);
  /// Takes over each peer of the other to which more a second was delivered than here.
  void raise(const StreamSample& other);
  /// Less is expected of all peers: `factor` of what was delivered.
  void fade(double factor);
  void clear() { by_peer_.clear(); }
  [[nodiscard]] bool empty() const { return by_peer_.empty(); }

  /// How long the base would have taken for what is delivered here, divided by what it took; 0
  /// where they have no peer in common.
  [[nodiscard]] double gain_over(const StreamSample& base) const;

 private:
  struct Progress {
    double seconds = 0, bytes = 0;
  };
  std::vector<Progress> by_peer_;
};

}  // namespace slipstream
