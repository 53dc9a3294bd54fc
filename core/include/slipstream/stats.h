#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slipstream/collective.h"
#include "slipstream/dtype.h"

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

enum class OperationState : std::uint8_t {
  kWaiting,  ///< submitted; a device or the operations before it hold it up
  kRunning,
  kDone,
  kFailed,
};

/// "waiting", "running", "done", "failed".
std::string_view name_of(OperationState state);

/// One operation, for the timeline and for flight records. Times are in nanoseconds of the steady
/// clock; 0 if the moment has not come.
struct OperationRecord {
  Collective collective{};
  DType dtype{};
  OperationState state{};
  std::string name;
  std::string group;
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  std::int64_t submitted = 0;
  std::int64_t started = 0;
  std::int64_t completed = 0;
  std::string error;  ///< of a failed operation
  /// Of an operation in flight or failed: ranks of the world that have not submitted it, as far as
  /// this rank knows, and ranks with which it still had to exchange data.
  std::vector<std::uint32_t> absent, missing;
};

}  // namespace slipstream
