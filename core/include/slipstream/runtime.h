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

#include "slipstream/log.h"
#include "slipstream/negotiation.h"
#include "slipstream/request.h"
#include "slipstream/stats.h"

namespace slipstream {

class Completion;
class Group;

/// How a runtime works; src/slipstream/settings names the environment variables.
struct RuntimeConfig {
  std::vector<std::string> bind{"127.0.0.1"};  ///< addresses to listen on, the best first
  std::string host_name;                       ///< for messages
  /// Ranks with equal ones must, with different ones may not use shared memory; where one is empty,
  /// reaching each other's Unix socket decides.
  std::string host_id;
  std::string rack;  ///< hosts with equal ones share a switch; a dimension
  /// Of the world, the innermost first, ranks counted in this order; none: ranks of a host, hosts
  /// of a rack, racks. Equal on all ranks.
  std::vector<std::uint32_t> dimensions;
  /// For segments, per peer over TCP; 0: some are opened, and as many used as carry more than
  /// fewer.
  std::uint16_t streams = 0;
  std::uint16_t first_streams = 0;  ///< of those that are tuned, used at first; 0: one
  std::string congestion;           ///< congestion control of TCP; empty: the system's
  std::uint8_t dscp = 0;            ///< 0 to 63
  std::uint64_t pacing_bytes = 0;   ///< a second, that each connection sends at most; 0: no limit
  std::uint64_t segment_bytes = 128 * 1024;  ///< <= 256 KB, equal on all ranks
  std::uint64_t eager_bytes = 8 * 1024;      ///< equal on all ranks
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(120);  ///< for a peer to answer
  std::chrono::nanoseconds peer_timeout = std::chrono::seconds(5);
  std::chrono::nanoseconds stall_after = std::chrono::seconds(60);
  std::chrono::nanoseconds operation_timeout = std::chrono::seconds(1800);
  Algorithm algorithm = Algorithm::kAuto;  ///< equal on all ranks
};

/// An operation in flight. Copies refer to the same operation; keeps the engine alive.
class Handle {
 public:
  Handle(std::shared_ptr<class RuntimeParts> parts, std::shared_ptr<Completion> completion)
      : parts_(std::move(parts)), completion_(std::move(completion)) {}

  [[nodiscard]] bool done() const;
  /// Blocks until done or for `timeout`, which does not end the operation; true when done.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout) const;
  /// Throws the error of an operation that is done and has failed.
  void check() const;
  /// After a receive: the rank in the group that sent.
  [[nodiscard]] std::uint32_t source() const;

 private:
  friend class Runtime;
  std::shared_ptr<class RuntimeParts> parts_;
  std::shared_ptr<Completion> completion_;
};

/// The engine of one rank with its transports: the one place where they are named. All functions
/// may be called from any thread; none but connect() and close() block.
class Runtime {
 public:
  /// `key` is the job's secret, of any length; it is never sent.
  Runtime(std::uint32_t rank, std::uint32_t world_size, std::uint32_t epoch,
          std::span<const std::byte> key, const RuntimeConfig& config);
  ~Runtime();

  /// What the peers need to reach this rank.
  [[nodiscard]] std::string address() const;
  /// Connects to all ranks; `addresses` are theirs, by rank. Blocks; calls `look` ten times a
  /// second meanwhile, which ends it by throwing.
  void connect(
      const std::vector<std::string>& addresses, std::chrono::nanoseconds timeout,
      const std::function<void()>& look = [] {});
  /// Ranks of this host (that share memory with this one), in order, this one among them.
  [[nodiscard]] std::vector<std::uint32_t> local_ranks() const;

  std::shared_ptr<Group> make_group(const std::string& name, std::vector<std::uint32_t> ranks);
  void close_group(Group& group);
  void abort_group(Group& group, const std::string& reason);
  Handle submit(const std::shared_ptr<Group>& group, Request request);
  /// For the allreduces submitted from now on; all members do it between the same two operations.
  void tune_group(Group& group, const AllreduceTuning& tuning);
  /// This rank's part in negotiations of the group, which all members make alike. It keeps the
  /// engine alive.
  std::shared_ptr<Negotiator> make_negotiator(const std::shared_ptr<Group>& group,
                                              const NegotiationOptions& options);

  /// Has next_event() return `token` once the operation is done.
  void notify(const Handle& handle, std::uint64_t token);
  std::optional<std::uint64_t> next_event(std::chrono::nanoseconds timeout);
  /// The engine's log, for one thread that passes it on.
  std::optional<std::pair<LogLevel, std::string>> next_log(std::chrono::nanoseconds timeout);

  [[nodiscard]] Stats stats();
  void keep_records(bool keep);
  [[nodiscard]] std::vector<OperationRecord> take_records();

  /// Says goodbye and ends everything in flight. Idempotent.
  void close();

 private:
  std::shared_ptr<RuntimeParts> parts_;
};

/// Of a group, for bindings.
std::uint32_t rank_in(const Group& group);
std::uint32_t size_of(const Group& group);
const std::string& name_of(const Group& group);
/// The sizes of the dimensions in which its ranks are laid out, the innermost first.
std::vector<std::uint32_t> dimensions_of(const Group& group);

/// The SIMD target chosen for this CPU: "AVX3", "AVX2", "NEON", ...
std::string simd_target_name();

/// The table by which algorithms are chosen, as text: a line a rule, columns separated by tabs.
std::string algorithm_table();

}  // namespace slipstream
