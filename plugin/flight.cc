#include "flight.h"

#include <algorithm>
#include <numeric>

#include "slipstream/error.h"

namespace slipstream::nccl {

Flight::Flight(const Link& link)
    : link_(link), streams_(link.num_streams()), bulk_(link.num_streams() - 1) {
  std::iota(bulk_.begin(), bulk_.end(), 1U);
}

std::uint32_t Flight::choose(TimePoint now) const {
  const std::uint32_t quickest = quickest_stream(
      link_, bulk_, [&](std::uint32_t stream) { return streams_[stream].pace.delay(now); });
  if (quickest != kNoStream) return quickest;
  const auto alive = [&](std::uint32_t stream) { return link_.alive(stream); };
  return !std::ranges::any_of(bulk_, alive) && link_.ready(0) ? 0 : kNoStream;
}

void Flight::sent(std::uint32_t stream, SegmentId segment, TimePoint now) {
  streams_[stream].unacknowledged.push_back(segment);
  streams_[stream].pace.sent(now);
}

std::vector<SegmentId> Flight::acknowledge(std::uint32_t stream, std::uint64_t count,
                                           TimePoint now) {
  if (stream >= streams_.size() ||
      count > streams_[stream].acknowledged + streams_[stream].unacknowledged.size()) {
    fail(ErrorKind::kPeer, "the receiver acknowledged ", count, " segments of stream ", stream,
         ", which were not sent");
  }
  Stream& from = streams_[stream];
  if (count <= from.acknowledged) return {};
  const auto several = static_cast<std::ptrdiff_t>(count - from.acknowledged);
  const auto end = from.unacknowledged.begin() + several;
  std::vector<SegmentId> covered(from.unacknowledged.begin(), end);
  from.unacknowledged.erase(from.unacknowledged.begin(), end);
  from.acknowledged = count;
  from.pace.acknowledged(covered.size(), now);
  return covered;
}

}  // namespace slipstream::nccl
