#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/doorbell.h"
#include "base/fork.h"
#include "engine/driver.h"
#include "engine/failures.h"
#include "engine/held_operations.h"
#include "engine/messages.h"
#include "engine/operations.h"
#include "engine/options.h"
#include "engine/receiver.h"
#include "engine/stream_control.h"
#include "engine/world.h"
#include "slipstream/flight.h"
#include "slipstream/log.h"
#include "slipstream/request.h"
#include "slipstream/stats.h"
#include "transport/identity.h"
#include "transport/transport.h"

namespace slipstream {

/// Runs collectives over the links of its transports, which it knows only by their interface.
///
/// Any thread may call submit(), wait(), abort(), make_group(), close_group(), stats() and
/// records(). Everything else runs under the driver's token.
class Engine final : private Driven {
 public:
  Engine(const Identity& identity, EngineOptions options, Doorbell& doorbell, Log log);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Must be called before connect(). The transport must outlive the engine.
  void add_transport(Transport& transport);
  /// Sets the name of a rank's host in messages, and the place where it runs; both are equal on all
  /// ranks. Must be called before connect().
  void place_rank(std::uint32_t rank, std::string host_name, Place place);
  /// Blocks until all other ranks are connected, then starts the progress thread. Meanwhile it
  /// calls `look` every 100 ms, which may throw. Throws Error(kPeerTimeout) with the missing ranks,
  /// or the error with which a transport refused a peer.
  void connect(TimePoint deadline, const std::function<void()>& look = [] {});
  /// The ranks that are reached through copying links, in order, including this one.
  [[nodiscard]] std::vector<std::uint32_t> local_ranks() const;

  /// The ranks that are lost or have left, with the reasons.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> lost_ranks();

  /// A group of world ranks that includes this one. All members must create it, in the same order
  /// among groups of the same name. Does not block.
  std::shared_ptr<Group> make_group(const std::string& name, std::vector<std::uint32_t> ranks);
  /// Ends the group's operations in flight, here and on the other members. Does not wait for peers.
  void close_group(Group& group);
  void abort_group(Group& group, const std::string& reason);
  /// The error of a group that has failed.
  std::optional<Error> failure_of(Group& group);
  /// Throws Error(kUsage) if the transports cannot carry segments of this size.
  void tune_group(Group& group, const AllreduceTuning& tuning);

  /// Begins an operation. Throws Error(kUsage) if the call is wrong on this rank alone.
  std::shared_ptr<Completion> submit(const std::shared_ptr<Group>& group, Request request);
  /// Blocks until the operation is done, or until `until`. Returns whether it is done. The
  /// operation's own error is in the completion.
  bool wait(Completion& completion, TimePoint until);
  /// The operation, how long it has waited, and for which ranks, in words; empty if it has ended.
  std::string state_of(const Completion& completion);

  /// Makes `watcher` receive what happens in the group, and what has happened already; nullptr
  /// removes the watcher.
  void watch(Group& group, GroupWatcher* watcher);
  /// Waits for an event that is not an operation: a watcher finishes `event`, or wake() is called.
  /// Frames that arrive are handled at once even if no operation is in flight. The caller must soon
  /// wait again, for this or for an operation.
  bool wait_for_event(Completion& event, TimePoint until);
  void wake() {
    woken_.store(true);
    driver_.kick(false);
  }
  /// Tells a member that this rank takes part in the group's latest collective, as a segment would.
  void nudge(Group& group, std::uint32_t rank);
  /// The place where a rank of the world runs.
  [[nodiscard]] const Place& place_of(std::uint32_t rank) const { return world_.places[rank]; }

  /// Tells the peers, waits until they have what they need, and stops. Idempotent.
  void close();

  [[nodiscard]] Stats stats();
  /// The state of the engine, and its last operations and events.
  [[nodiscard]] FlightSnapshot flight();
  /// The number of events for which a flight record should be written. Any thread may call it.
  [[nodiscard]] std::uint64_t alarms() const { return world_.flight.alarms(); }
  /// Sets a function that is called at each of these events; it must not block. Must be called
  /// before connect().
  void on_alarm(std::function<void()> call) { world_.flight.on_alarm(std::move(call)); }
  void keep_records(bool keep) { operations_.keep_records(keep); }
  /// The records since the last call.
  [[nodiscard]] std::vector<OperationRecord> take_records() { return operations_.take_records(); }

 private:
  // Driven
  bool poll() override;
  [[nodiscard]] bool has_work() const noexcept override {
    return operations_.in_flight() > 0 || listeners_.load() > 0 ||
           unsent_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_urgent() const noexcept override { return !operations_.runs_bulk(); }
  [[nodiscard]] TimePoint next_event() const override;
  [[nodiscard]] const std::vector<int>& wait_fds() const override { return wait_fds_; }

  bool poll_once();
  bool pump_peers();
  void tick();
  void start_submitted();
  /// Starts the held operations that may start. Returns whether there were any.
  bool start_held();
  /// If an operation cannot be started, it fails, the error is thrown, and the operations behind it
  /// are held until the next turn.
  void start_in_order(std::span<const std::shared_ptr<Operation>> ready);
  void start(const std::shared_ptr<Operation>& operation);
  [[noreturn]] void fail_closed() const;

  // engine_groups.cc
  [[nodiscard]] Layout layout_of(const std::vector<std::uint32_t>& ranks,
                                 std::uint32_t index) const;
  [[nodiscard]] std::uint32_t check_members(const std::string& name,
                                            const std::vector<std::uint32_t>& ranks) const;
  [[nodiscard]] std::uint64_t next_group_id(const std::string& name,
                                            const std::vector<std::uint32_t>& ranks);

  // engine_life.cc
  void watch_transports(const std::function<bool(const Transport&)>& is_busy);
  void await_links(TimePoint deadline, const std::function<void()>& look);
  void settle();

  const Origin origin_;
  World world_;
  Operations operations_;
  Failures failures_;
  Messages messages_;
  StreamControl streams_;
  Receiver receiver_;
  Driver driver_;
  std::vector<Transport*> transports_, busy_transports_;
  std::vector<int> wait_fds_;

  std::mutex submit_mutex_;
  std::vector<std::shared_ptr<Operation>> submitted_;     // guarded by submit_mutex_
  std::uint64_t next_order_ = 0;                          // guarded by submit_mutex_
  bool accepting_ = true;                                 // guarded by submit_mutex_
  std::map<std::string, std::uint64_t> group_instances_;  // guarded by submit_mutex_
  std::atomic<bool> woken_{false};                        // wake() was called since the last poll
  std::atomic<std::uint64_t> listeners_{0};               // threads in wait_for_event()
  std::atomic<bool> unsent_{false};           // frames are waiting for a link to accept them
  std::atomic<std::int64_t> last_submit_{0};  // in nanoseconds of the clock
  std::atomic<std::uint64_t> blocked_{0};     // nanoseconds in wait()

  // driver
  HeldOperations held_;
  TimePoint next_tick_{};
  bool network_waits_ = false;  // segments are waiting for a stream to another host
};

}  // namespace slipstream
