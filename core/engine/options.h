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
  std::uint64_t eager_bytes = 8 * 1024;         ///< steps up to this size are sent unasked
  std::uint64_t eager_pool_bytes = 256 * 1024;  ///< unasked bytes that a peer may have to keep
  Nanoseconds peer_timeout = 5s;                ///< silence after which a peer is dead
  Nanoseconds stall_after = 60s;                ///< age at which an operation is reported
  Nanoseconds operation_timeout = 1800s;
  Nanoseconds goodbye_timeout = 3s;  ///< for peers to take what they still must have
  std::uint32_t most_streams = 8;    ///< streams to a peer that carry segments, at most
  bool fixed_streams = false;        ///< always use `most_streams`; else as many as pay
  std::uint32_t first_streams = StreamTuner::kFirstCount;  ///< to begin with, if not fixed
  Algorithm algorithm = Algorithm::kAuto;
  std::vector<std::uint32_t> dimensions;  ///< of the world; empty: derived from the places
  Driver::Options driver;
};

}  // namespace slipstream
