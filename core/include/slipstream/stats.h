#pragma once

#include <cstdint>
#include <string>

#include "slipstream/collective.h"

namespace slipstream {

/// Counters since the runtime was created. Bytes include headers.
struct Stats {
  std::uint64_t operations = 0;  ///< completed
  std::uint64_t failed_operations = 0;
  std::uint64_t network_bytes_sent = 0;
  std::uint64_t network_bytes_received = 0;
  std::uint64_t shm_bytes_sent = 0;
  std::uint64_t shm_bytes_received = 0;
  std::uint64_t segments_sent_again = 0;
  std::uint64_t streams_lost = 0;
  std::uint64_t streams_reopened = 0;  ///< lost streams that have a new connection
  /// Streams that carry segments to a peer over the network, for the peer with the most.
  std::uint64_t streams = 0;
  std::uint64_t stalls_reported = 0;
  std::uint64_t busy_nanoseconds = 0;  ///< time with at least one operation in flight
  /// Time that callers spent in wait(), summed over threads.
  std::uint64_t blocked_nanoseconds = 0;
  std::int64_t last_submit_nanoseconds = 0;    ///< steady clock
  std::int64_t last_complete_nanoseconds = 0;  ///< steady clock
};

/// One completed operation, for the timeline. Times are in nanoseconds of the steady clock.
struct OperationRecord {
  Collective collective{};
  std::string name;
  std::string group;
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  std::int64_t submitted = 0;
  std::int64_t started = 0;
  std::int64_t completed = 0;
  bool failed = false;
};

}  // namespace slipstream
