#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/clock.h"

namespace slipstream {

/// Decides for how long a peer may be silent, from its longest silence of late.
///
/// A peer that sends heartbeats regularly is lost sooner than one whose process gets no processor
/// for a while now and then. Adaptive timeouts of failure detectors are described by Chen, Toueg
/// and Aguilera, On the quality of service of failure detectors, IEEE Trans. Computers 2002.
class Silence {
 public:
  /// Time between two heartbeats to a peer to which nothing else is sent.
  static constexpr Nanoseconds kHeartbeat = 250ms;

  /// Records a silence that has ended.
  void ended(Nanoseconds length, TimePoint now) {
    if (now - since_ > kPeriod) {
      longest_ = {longest_[1], Nanoseconds{0}};
      since_ = now;
      ++periods_;
    }
    longest_[1] = std::max(longest_[1], length);
  }

  /// Starts anew, because this process itself was stopped, or the peer has just connected.
  void forget(TimePoint now) { *this = Silence(now); }

  /// Four times the longest silence of the last one or two periods, from 2 s to `most`; `most` in
  /// the first period.
  [[nodiscard]] Nanoseconds patience(Nanoseconds most) const {
    if (periods_ == 0) return most;
    const Nanoseconds wanted = 4 * std::max(longest_[0], longest_[1]);
    return std::min(most, std::max(kLeast, wanted));
  }

  Silence() = default;

 private:
  explicit Silence(TimePoint now) : since_(now) {}

  static constexpr Nanoseconds kLeast = 2s;
  static constexpr Nanoseconds kPeriod = 10s;

  TimePoint since_{};                     // when the present period began
  std::array<Nanoseconds, 2> longest_{};  // of the last period and of the present one
  std::size_t periods_ = 0;               // complete ones
};

}  // namespace slipstream
