#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/doorbell.h"
#include "base/fork.h"
#include "engine/driver.h"
#include "engine/group.h"
#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/stream_lead.h"
#include "engine/stream_tuner.h"
#include "slipstream/log.h"
#include "slipstream/request.h"
#include "slipstream/stats.h"
#include "transport/identity.h"
#include "transport/transport.h"

namespace slipstream {

struct EngineOptions {
  std::uint64_t segment_bytes = 128 * 1024;
  std::uint64_t eager_bytes = 8 * 1024;         ///< steps up to this size are sent unasked
  std::uint64_t eager_pool_bytes = 256 * 1024;  ///< unasked bytes that a peer may have to hold
  Nanoseconds peer_timeout = 5s;                ///< silence after which a peer is dead
  Nanoseconds stall_after = 60s;                ///< age at which an operation is reported
  Nanoseconds operation_timeout = 1800s;
  Nanoseconds goodbye_timeout = 3s;  ///< for peers to take what they still must have
  std::uint32_t most_streams = 8;    ///< to a peer, that carry segments
  bool fixed_streams = false;        ///< use so many always; else as many as are worth it
  std::uint32_t first_streams = StreamTuner::kFirstCount;  ///< to begin with, where not fixed
  Algorithm algorithm = Algorithm::kAuto;
  std::vector<std::uint32_t> dimensions;  ///< of the world; none: found from the places
  Driver::Options driver;
};

/// Runs collectives over the links of its transports. Knows transports by their interface only.
///
/// Threads: submit(), wait(), abort(), make_group(), close_group(), stats() and records() may be
/// called from any; everything else runs under the driver's token.
class Engine final : private Sink, private Driven, private SegmentSource {
 public:
  Engine(const Identity& identity, EngineOptions options, Doorbell& doorbell, Log log);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Before connect(). The transport must outlive the engine.
  void add_transport(Transport& transport);
  /// What messages call a rank's host, and where it runs: equal on all ranks. Before connect().
  void place_rank(std::uint32_t rank, std::string host_name, Place place);
  /// Blocks until every other rank is connected, then starts the progress thread.
  /// Throws Error(kPeerTimeout) that lists the missing ranks, or what a transport refused with.
  /// Calls `look` every 100 ms meanwhile, which may throw.
  void connect(TimePoint deadline, const std::function<void()>& look = [] {});
  /// Ranks that are reached through copying links, in order, this one among them.
  [[nodiscard]] std::vector<std::uint32_t> local_ranks() const;

  /// A group of world ranks that includes this one. All members make it alike, in the same order
  /// among groups of the same name. Does not block.
  std::shared_ptr<Group> make_group(const std::string& name, std::vector<std::uint32_t> ranks);
  /// Ends what is in flight, here and at the members. Does not block on peers.
  void close_group(Group& group);
  void abort_group(Group& group, const std::string& reason);
  /// Throws Error(kUsage) for segments that the transports cannot carry.
  void tune_group(Group& group, const AllreduceTuning& tuning);

  /// Begins an operation. Throws Error(kUsage) for a call that is wrong on this rank alone.
  std::shared_ptr<Completion> submit(const std::shared_ptr<Group>& group, Request request);
  /// Blocks until done or `until`; true when done. The operation's own error is in the completion.
  bool wait(Completion& completion, TimePoint until);

  /// Has `watcher` told of what happens in the group, and of what has; nullptr: nobody any more.
  void watch(Group& group, GroupWatcher* watcher);
  /// wait() for something that is no operation: a watcher finishes `event`, or whoever calls wake()
  /// next. What arrives meanwhile is looked at at once, although nothing may be in flight. The
  /// caller waits again at once, for this or for an operation.
  bool wait_for_event(Completion& event, TimePoint until);
  void wake() {
    woken_.store(true);
    driver_.kick(false);
  }
  /// Tells a member that this rank is in the group's latest collective, as segments do.
  void nudge(Group& group, std::uint32_t rank);
  /// Where a rank of the world runs.
  [[nodiscard]] const Place& place_of(std::uint32_t rank) const { return places_[rank]; }

  /// Says goodbye, waits until peers have what they need, stops. Idempotent.
  void close();

  [[nodiscard]] Stats stats();
  void keep_records(bool keep);
  /// The records since the last call.
  [[nodiscard]] std::vector<OperationRecord> take_records();

 private:
  // Driven
  bool poll() override;
  [[nodiscard]] bool has_work() const noexcept override {
    return in_flight_.load() > 0 || listeners_.load() > 0 ||
           unsent_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_urgent() const noexcept override {
    return running_bulk_.load(std::memory_order_relaxed) == 0;
  }
  [[nodiscard]] TimePoint next_event() const override;
  [[nodiscard]] const std::vector<int>& wait_fds() const override { return wait_fds_; }
  // Sink
  void connected(std::uint32_t peer, Link& link) override;
  void refused(std::uint32_t peer, const std::string& reason) override;
  std::byte* place(std::uint32_t peer, const Frame& frame) override;
  void arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
               std::span<const std::byte> payload) override;
  void stream_lost(std::uint32_t peer, std::uint32_t stream, const std::string& reason) override;
  // SegmentSource
  Frame frame_of(const Segment& segment) override;
  std::span<const std::byte> payload_of(const Segment& segment) override;
  [[nodiscard]] bool is_cancelled(const Segment& segment) const override;
  void segment_done(const Segment& segment) override;

  // engine.cc: the life of an operation
  [[nodiscard]] Layout layout_of(const std::vector<std::uint32_t>& ranks,
                                 std::uint32_t index) const;
  void watch_transports(const std::function<bool(const Transport&)>& is_busy);
  bool poll_once();
  bool pump_peers();
  void start_submitted();
  void start(const std::shared_ptr<Operation>& operation);
  void note_bulk(Operation& operation);
  void fail_if_forsaken(const std::shared_ptr<Operation>& operation);
  void post_credits(Operation& operation);
  void issue(const std::shared_ptr<Operation>& operation, std::uint32_t step,
             std::uint32_t segment);
  void issue_send(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                  std::uint32_t segment);
  bool send_eagerly(const std::shared_ptr<Operation>& operation, std::uint32_t step);
  void finish_segment(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                      std::uint32_t segment);
  void complete(const std::shared_ptr<Operation>& operation);
  void fail_operation(const std::shared_ptr<Operation>& operation, const Error& cause);
  void forget_memory(const Operation& operation);
  void retire(const Operation& operation, bool failed);

  // frames.cc: what arrives
  void dispatch(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  void on_segment(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  void on_eager(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  void on_post(Peer& peer, Group& group, const Frame& frame);
  void on_request(Peer& peer, Group& group, const Frame& frame);
  void on_probe(Peer& peer, Group& group, const Frame& frame);
  void on_goodbye(Peer& peer);
  void on_unknown_group(Peer& peer, const Frame& frame, std::span<const std::byte> payload);
  struct Target {
    std::shared_ptr<Operation> operation;
    std::uint32_t step = 0, segment = 0;
  };
  [[nodiscard]] Target target_of(std::uint32_t peer, Group& group, const Frame& frame) const;
  void take_eager(Peer& peer, const std::shared_ptr<Operation>& operation, const Frame& frame,
                  std::span<const std::byte> payload);
  void release_eager(Peer& peer, std::uint64_t bytes);

  // point_to_point.cc
  void start_send(const std::shared_ptr<Operation>& operation);
  void start_receive(const std::shared_ptr<Operation>& operation);
  void on_message(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  void match(const std::shared_ptr<Operation>& receive, Early&& message);
  void check_message_possible(const std::shared_ptr<Operation>& operation);

  // streams.cc: how many carry segments
  void tune_streams(bool waited);
  void announce_streams();
  void report_streams();
  void use_streams();
  void on_streams(const Peer& peer, const Frame& frame);
  void on_streams_report(const Peer& peer, const Frame& frame);

  // stall.cc: what waits for long
  void stall(const std::shared_ptr<Operation>& operation);
  [[nodiscard]] std::string changes(Operation& operation) const;
  [[nodiscard]] std::vector<std::uint32_t> absent_from(const Operation& operation) const;
  [[nodiscard]] std::string waiting_for(const Operation& operation) const;

  // watch.cc: what goes wrong
  void tick();
  void watch_peers();
  void tell_lost_streams();
  void watch_operations();
  void watch_mismatches();
  void probe(const Operation& operation);
  [[nodiscard]] std::string name_of_peer(std::uint32_t rank) const;
  void peer_gone(Peer& peer, const std::string& reason);
  void fail_operations_with(const Peer& peer);
  void settle();
  void begin_mismatch(Group& group, std::uint64_t sequence);
  void tell_mismatch(Group& group, const std::string& passed);
  void on_describe(Peer& peer, Group& group, const Frame& frame,
                   std::span<const std::byte> payload);
  void end_mismatch(Group& group);
  /// Ends the group's operations from number `first` on, and all that follow.
  void fail_group(Group& group, const Error& cause, bool tell, std::uint64_t first = 0);
  void drop_undelivered(Group& group, std::uint64_t first);
  void on_abort(Group& group, const Frame& frame, std::span<const std::byte> payload);
  void send_abort(Peer& peer, std::uint64_t group, const Error& cause, std::uint64_t first);

  [[nodiscard]] Frame frame_for(FrameKind kind, const Group& group, std::uint64_t sequence) const;
  void broadcast(const Group& group, const Frame& frame, std::span<const std::byte> payload);
  Peer& peer_of(const Group& group, std::uint32_t rank) { return *peers_[group.ranks()[rank]]; }
  [[nodiscard]] Group* group_with(std::uint64_t id) const;

  const Origin origin_;
  const Identity identity_;
  const EngineOptions options_;
  const Log log_;
  Driver driver_;
  std::vector<Transport*> transports_, busy_transports_;
  std::vector<int> wait_fds_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by world rank; nullptr at this one
  std::vector<std::string> hosts_;            // their names
  std::vector<Place> places_;
  std::vector<std::string> refusals_;

  std::mutex submit_mutex_;
  std::vector<std::shared_ptr<Operation>> submitted_;     // guarded by submit_mutex_
  std::uint64_t next_order_ = 0;                          // guarded by submit_mutex_
  bool accepting_ = true;                                 // guarded by submit_mutex_
  std::map<std::string, std::uint64_t> group_instances_;  // guarded by submit_mutex_
  std::atomic<std::uint64_t> in_flight_{0};
  std::atomic<bool> woken_{false};           // wake() since the last poll
  std::atomic<std::uint64_t> listeners_{0};  // threads in wait_for_event()
  std::atomic<bool> unsent_{false};          // frames wait for a link to take them

  // driver
  TimePoint now_{}, next_tick_{}, last_poll_{};
  std::unordered_map<std::uint64_t, std::shared_ptr<Group>> groups_;
  std::unordered_map<std::uint64_t, std::uint64_t> closed_groups_;  // id -> operations begun
  std::unordered_map<std::uint64_t, std::vector<Early>> unknown_groups_;
  Stats stats_;
  StreamTuner stream_tuner_;
  StreamLead stream_lead_;
  TimePoint lead_again_{};       // when this rank, which leads, says so again
  std::uint32_t announced_ = 0;  // its last plan
  std::vector<std::pair<std::uint32_t, std::string>> lost_streams_;  // by whom, not told yet
  bool network_waits_ = false;
  std::atomic<std::uint64_t> running_bulk_{0};  // operations
  TimePoint busy_since_{};
  std::uint64_t running_ = 0;
  bool closed_ = false;

  std::mutex records_mutex_;
  std::vector<OperationRecord> records_;  // guarded by records_mutex_
  std::atomic<bool> keeps_records_{false};
  std::atomic<std::int64_t> last_submit_{0};
  std::atomic<std::uint64_t> blocked_{0};
};

}  // namespace slipstream
