#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slipstream/stats.h"

namespace slipstream {

constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

/// An event of an engine that may explain a failure.
struct FlightEvent {
  enum class Kind : std::uint8_t {
    kStreamsLost,
    kStreamsOpened,
    kAborted,  ///< another rank told this rank that a group has failed
    kFailed,   ///< a group failed on this rank
    kStalled,  ///< an operation of this rank waits for long
    kAwaited,  ///< another rank waits for long for an operation that this rank has not submitted
    kPaused,   ///< this process did not run for a while
  };

  Kind kind{};
  std::int64_t at = 0;           ///< nanoseconds of the steady clock
  std::uint32_t rank = kNoRank;  ///< the other rank of the world, if there is one
  std::string group;
  std::uint64_t sequence = 0;  ///< number of the operation in its group, if there is one
  std::string text;
};

/// "streams lost", "streams opened", "aborted", "failed", "stalled", "awaited", "paused".
std::string_view name_of(FlightEvent::Kind kind);

/// Another rank, as this rank sees it.
struct FlightPeer {
  std::uint32_t rank = 0;
  std::string host;
  std::string connection;  ///< "tcp 10.0.0.7:41234", "shm"; empty: never connected
  std::string state;       ///< "connecting", "connected", "left", "gone"
  std::string why;         ///< the reason why it left or is gone
  std::int64_t ended = 0;  ///< the time at which it left or was gone, in ns of the steady clock
  std::int64_t heard = 0;  ///< the time at which its last frame arrived, in ns of the steady clock
  std::uint32_t streams = 0;        ///< connections to it
  std::uint32_t streams_alive = 0;  ///< those of them that are open
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

struct FlightGroup {
  std::string name;
  std::vector<std::uint32_t> ranks;  ///< ranks of the world, by rank in the group
  std::uint64_t started = 0;         ///< collectives that this rank has started
  /// For each member: the collectives that it has submitted, as far as this rank knows.
  std::vector<std::uint64_t> submitted;
  std::string failure;  ///< the error of the group; empty if it has not failed
};

/// The state of an engine at one moment, and its last operations and events, the oldest first.
struct FlightSnapshot {
  std::uint32_t rank = 0, world_size = 0, epoch = 0;
  std::int64_t at = 0;  ///< nanoseconds of the steady clock
  std::uint64_t ended_operations = 0;
  std::vector<OperationRecord> operations;  ///< those that have ended, then those in flight
  std::vector<FlightEvent> events;
  std::vector<FlightPeer> peers;
  std::vector<FlightGroup> groups;
};

}  // namespace slipstream
