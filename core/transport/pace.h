#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "transport/transport.h"

namespace slipstream {

constexpr std::uint32_t kNoStream = ~std::uint32_t{0};

/// The pace at which the peer acknowledges the segments of one stream.
class Pace {
 public:
  void sent(TimePoint now) {
    if (pending_++ == 0) moved_ = now;
  }
  void acknowledged(std::uint64_t several, TimePoint now) {
    const Nanoseconds last = (now - moved_) / static_cast<Nanoseconds::rep>(several);
    pace_ = pace_.count() == 0 ? last : (3 * pace_ + last) / 4;
    moved_ = now;
    pending_ -= std::min(pending_, several);
  }
  /// An estimate of the time until one more segment would be acknowledged.
  [[nodiscard]] Nanoseconds delay(TimePoint now) const {
    const auto pending = static_cast<Nanoseconds::rep>(pending_);
    return (pending + 1) * (pending > 0 ? std::max(pace_, now - moved_) : pace_);
  }

 private:
  std::uint64_t pending_ = 0;  // segments that are not acknowledged
  Nanoseconds pace_{};         // approximate time between two acknowledgements
  TimePoint moved_{};  // time of the last one, or the time at which the stream began to send again
};

/// The stream of `streams` that would deliver a segment first (Lim et al., ECF, CoNEXT 2017), by
/// the estimates of `delay_of(stream)`. There is none (kNoStream) if a busy stream would still be
/// quicker than those that can accept the segment now.
template <typename DelayOf>
std::uint32_t quickest_stream(const Link& link, std::span<const std::uint32_t> streams,
                              DelayOf delay_of) {
  // Streams that would take this many times longer than the quickest one are not used. Over 24
  // streams to paths of which one is slow, 1.2 gives 1.57 to 1.64 s per allreduce, 2 gives 1.80 s
  // (ARCHITECTURE.md).
  constexpr double kPatience = 1.2;
  std::uint32_t quickest = kNoStream;
  Nanoseconds least = Nanoseconds::max(), least_ready = Nanoseconds::max();
  for (const std::uint32_t stream : streams) {
    if (!link.alive(stream)) continue;
    const Nanoseconds delay = delay_of(stream);
    least = std::min(least, delay);
    if (link.ready(stream) && delay < least_ready) {
      least_ready = delay;
      quickest = stream;
    }
  }
  return quickest == kNoStream || least_ready > kPatience * least ? kNoStream : quickest;
}

}  // namespace slipstream
