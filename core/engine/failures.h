#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/operations.h"
#include "engine/world.h"

namespace slipstream {

/// Detects failures and ends the operations that they concern: silent and dead peers, stragglers,
/// and operations that differ between ranks. No operation hangs, and every message names the rank,
/// the place and the cause.
class Failures {
 public:
  Failures(World& world, Operations& operations) : world_(world), operations_(operations) {}

  /// Checks peers, operations and mismatches. Called at every tick.
  void tick();

  /// The operation of a completion, and the ranks for which it waits, in words; empty if it has
  /// ended.
  [[nodiscard]] std::string state_of(const Completion& completion) const;

  /// The state of the engine, and its last operations and events.
  [[nodiscard]] FlightSnapshot snapshot() const;
  /// A rank waits for long for an operation that this rank has not submitted.
  void on_stalled_probe(const Peer& peer, const Group& group, const Frame& frame);

  void stream_lost(std::uint32_t rank, std::uint32_t stream, const std::string& reason);
  void stream_opened(std::uint32_t rank, std::uint32_t stream);
  /// Gives up a peer that breaks the protocol; `why` is the end of a sentence about its frame.
  void break_off(Peer& peer, const Frame& frame, const std::string& why);
  /// No path to the rank is left.
  void unreachable(std::uint32_t rank, const std::string& reason);

  /// Fails the group's operations from number `first` on, including later ones. If `tell` is true,
  /// the other members are told.
  void fail_group(Group& group, const Error& cause, bool tell, std::uint64_t first = 0);
  /// Fails all groups and tells their members.
  void fail_everything(const Error& cause);
  void send_abort(Peer& peer, std::uint64_t group, const Error& cause, std::uint64_t first);
  void on_abort(const Peer& peer, Group& group, const Frame& frame,
                std::span<const std::byte> payload);
  /// Drops messages for operations from number `first` on, which no operation will take.
  void drop_undelivered(Group& group, std::uint64_t first);

  /// Starts the exchange after two ranks passed different arguments for the same operation: every
  /// member tells all others what it passed.
  void begin_mismatch(Group& group, std::uint64_t sequence);
  void tell_mismatch(Group& group, const std::string& passed);
  void on_describe(Peer& peer, Group& group, const Frame& frame,
                   std::span<const std::byte> payload);

 private:
  void watch_peers();
  void tell_stream_news();
  void watch_operations();
  void watch_mismatches();
  void end_mismatch(Group& group);
  void time_out(const std::shared_ptr<Operation>& operation);
  void probe(const Operation& operation);
  void peer_gone(Peer& peer, const std::string& reason);
  void fail_operations_with(const Peer& peer);
  [[nodiscard]] std::string activity_with(const Peer& peer) const;

  [[nodiscard]] std::vector<std::shared_ptr<Operation>> operations_in_flight() const;

  /// Seconds from `at` until now, rounded to milliseconds for messages.
  [[nodiscard]] double seconds_since(TimePoint at) const {
    return seconds(std::chrono::round<std::chrono::milliseconds>(world_.now - at));
  }

  // stall.cc
  void stall(const std::shared_ptr<Operation>& operation);
  [[nodiscard]] std::string state_of(const Operation& operation) const;
  [[nodiscard]] std::string changes(Operation& operation) const;
  [[nodiscard]] std::vector<std::uint32_t> absent_from(const Operation& operation) const;
  [[nodiscard]] std::string waiting_for(const Operation& operation) const;
  void tell_stall(const Operation& operation) const;

  World& world_;
  Operations& operations_;
  /// What is not logged yet about the streams to a rank.
  struct StreamNews {
    std::vector<std::uint32_t> lost, opened;
    std::string reason;   // of the first loss
    bool is_cut = false;  // no stream was left
  };
  std::map<std::uint32_t, StreamNews> stream_news_;  // by rank
};

}  // namespace slipstream
