#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slipstream/device_group.h"
#include "slipstream/flight.h"
#include "slipstream/log.h"
#include "slipstream/negotiation.h"
#include "slipstream/request.h"
#include "slipstream/stats.h"

namespace slipstream {

class Completion;
class Group;

/// Options of a runtime; src/slipstream/settings names the environment variables.
struct RuntimeConfig {
  std::vector<std::string> bind{"127.0.0.1"};  ///< addresses to listen on, the best first
  std::string host_name;                       ///< for messages
  /// Ranks with equal ids must share memory, and ranks with different ids never do. If an id is
  /// empty, ranks share memory if they can reach each other's Unix socket.
  std::string host_id;
  std::string rack;  ///< hosts with equal racks share a switch; racks are a dimension
  /// Sizes of the world's dimensions, the innermost first; ranks are counted in this order. If it
  /// is empty, the dimensions are ranks of a host, hosts of a rack, and racks. Equal on all ranks.
  std::vector<std::uint32_t> dimensions;
  /// Streams per peer over TCP that carry segments. With 0, several are opened, and the number in
  /// use is tuned (see engine/stream_tuner.h).
  std::uint16_t streams = 0;
  /// Whether connections over TCP are encrypted by TLS 1.3. Equal on all ranks.
  bool tls = false;
  std::uint16_t first_streams = 0;  ///< in use at first if their number is tuned; 0: one
  std::string congestion;           ///< congestion control of TCP; empty: the system's default
  std::uint8_t dscp = 0;            ///< 0 to 63
  /// Most bytes per second that each connection sends; 0: no limit.
  std::uint64_t pacing_bytes = 0;
  std::uint64_t segment_bytes = 128 * 1024;  ///< <= 256 KB, equal on all ranks
  std::uint64_t eager_bytes = 8 * 1024;      ///< equal on all ranks
  /// Time that a peer has to answer.
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(120);
  std::chrono::nanoseconds peer_timeout = std::chrono::seconds(5);
  std::chrono::nanoseconds stall_after = std::chrono::seconds(60);
  std::chrono::nanoseconds operation_timeout = std::chrono::seconds(1800);
  Algorithm algorithm = Algorithm::kAuto;  ///< equal on all ranks
};

/// An operation in flight. Copies refer to the same operation. A handle keeps the engine alive.
class Handle {
 public:
  Handle(std::shared_ptr<class RuntimeParts> parts, std::shared_ptr<Completion> completion)
      : parts_(std::move(parts)), completion_(std::move(completion)) {}

  [[nodiscard]] bool done() const;
  /// Blocks until the operation is done, or for `timeout`, which does not end the operation.
  /// Returns whether it is done.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout) const;
  /// The operation, how long it has waited, and for which ranks, in words.
  [[nodiscard]] std::string describe() const;
  /// Throws the error of an operation that has failed.
  void check() const;
  /// The sender of a received message, as rank in the group.
  [[nodiscard]] std::uint32_t source() const;

 private:
  friend class Runtime;
  std::shared_ptr<class RuntimeParts> parts_;
  std::shared_ptr<Completion> completion_;
};

/// The engine of one rank with its transports, which are named only here. Any thread may call its
/// functions; only connect() and close() block.
class Runtime {
 public:
  /// `key` is the job's secret, of any length; it is never sent.
  Runtime(std::uint32_t rank, std::uint32_t world_size, std::uint32_t epoch,
          std::span<const std::byte> key, const RuntimeConfig& config);
  ~Runtime();

  /// The address at which peers reach this rank.
  [[nodiscard]] std::string address() const;
  /// Connects to all ranks; `addresses` has one entry for each rank. Blocks. Meanwhile it calls
  /// `look` ten times a second; an exception of `look` ends the wait.
  void connect(
      const std::vector<std::string>& addresses, std::chrono::nanoseconds timeout,
      const std::function<void()>& look = [] {});
  /// The ranks of this host (ranks that share memory with this one), in order, including this one.
  [[nodiscard]] std::vector<std::uint32_t> local_ranks() const;

  /// The ranks that are lost or have left, with the reasons.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> lost_ranks() const;

  std::shared_ptr<Group> make_group(const std::string& name, std::vector<std::uint32_t> ranks);
  void close_group(Group& group);
  void abort_group(Group& group, const std::string& reason);
  /// Throws the error of a group that has failed. A group without operations fails as well, if a
  /// member is lost or aborts the group.
  void check_group(Group& group);
  Handle submit(const std::shared_ptr<Group>& group, Request request);
  /// Applies to allreduces that are submitted later. All members must call it between the same two
  /// operations.
  void tune_group(Group& group, const AllreduceTuning& tuning);
  /// This rank's part in the negotiations of the group. All members must create it. It keeps the
  /// engine alive.
  std::shared_ptr<Negotiator> make_negotiator(const std::shared_ptr<Group>& group,
                                              const NegotiationOptions& options);

  /// The collectives of the group on the memory of a GPU. It keeps the engine alive.
  std::shared_ptr<DeviceGroup> make_device_group(const std::shared_ptr<Group>& group,
                                                 const DeviceOptions& options);

  /// Makes next_event() return `token` once the operation is done.
  void notify(const Handle& handle, std::uint64_t token);
  std::optional<std::uint64_t> next_event(std::chrono::nanoseconds timeout);
  /// The next record of the engine's log, for the one thread that forwards it; nothing after
  /// `timeout`, or at once after an alarm.
  std::optional<std::pair<LogLevel, std::string>> next_log(std::chrono::nanoseconds timeout);

  [[nodiscard]] Stats stats();
  /// The state of the engine, and its last operations and events.
  [[nodiscard]] FlightSnapshot flight();
  /// The number of events so far for which a flight record should be written: a group has failed,
  /// or an operation waits for long.
  [[nodiscard]] std::uint64_t alarms() const;
  void keep_records(bool keep);
  [[nodiscard]] std::vector<OperationRecord> take_records();

  /// Tells the peers, and ends all operations in flight. Idempotent.
  void close();

 private:
  std::shared_ptr<RuntimeParts> parts_;
};

/// Properties of a group, for bindings.
std::uint32_t rank_in(const Group& group);
std::uint32_t size_of(const Group& group);
const std::string& name_of(const Group& group);
/// The sizes of the dimensions of the group's ranks, the innermost first.
std::vector<std::uint32_t> dimensions_of(const Group& group);

/// The group's ranks on this host, in order; nothing if hosts have different numbers of ranks.
std::vector<std::uint32_t> ranks_of_host(const Group& group);

/// Of every host, the rank of the group with this rank's position on its host; nothing if hosts
/// have different numbers of ranks.
std::vector<std::uint32_t> counterparts_of(const Group& group);

/// The SIMD target chosen for this CPU: "AVX3", "AVX2", "NEON", ...
std::string simd_target_name();

/// The table of rules that choose algorithms, as text: one rule per line, with columns separated by
/// tabs.
std::string algorithm_table();

}  // namespace slipstream
