#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/driver.h"
#include "engine/stream_tuner.h"
#include "slipstream/request.h"

namespace slipstream {

struct EngineOptions {
  std::uint64_t segment_bytes = 128 * 1024;
  std::uint64_t eager_bytes = 8 * 1024;  ///< steps up to this size are sent without being asked for
  std::uint64_t eager_pool_bytes = 256 * 1024;  ///< bytes sent unasked that a peer may have to keep
  Nanoseconds peer_timeout = 5s;                ///< silence after which a peer is dead
  Nanoseconds stall_after = 60s;                ///< age at which an operation is reported
  Nanoseconds operation_timeout = 1800s;
  Nanoseconds goodbye_timeout = 3s;  ///< time for peers to receive what they still need
  std::uint32_t most_streams = 8;    ///< most streams to a peer that carry segments
  bool fixed_streams = false;        ///< always use `most_streams`; otherwise their number is tuned
  /// Streams in use at first, if not fixed.
  std::uint32_t first_streams = StreamTuner::kFirstCount;
  Algorithm algorithm = Algorithm::kAuto;
  /// Sizes of the world's dimensions; empty: derived from the places.
  std::vector<std::uint32_t> dimensions;
  Driver::Options driver;
};

}  // namespace slipstream
