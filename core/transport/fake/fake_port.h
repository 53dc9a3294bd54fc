#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "transport/fake/fault.h"
#include "transport/frame.h"

namespace slipstream {

/// The behaviour of a FakeNetwork. By default it is fast, has no faults and copies late, like TCP.
struct FakeOptions {
  std::uint32_t num_streams = 2;  ///< streams of each pair of ranks; stream 0 is the control stream
  std::uint32_t capacity_frames = 16;  ///< undelivered frames of a lane above which send() refuses
  Nanoseconds delay{0};                ///< from send() to arrival
  Nanoseconds jitter{
      0};  ///< largest random addition to each frame's delay, so that streams overtake one another
  double bytes_per_second = 0;  ///< of each lane; 0: no limit
  /// Probability that a payload is placed in one poll() and finished in another.
  double split_probability = 0;
  std::uint64_t seed = 1;       ///< for jitter, splits and random faults
  bool copies_payload = false;  ///< true: as shm, which copies in send(); false: as TCP
  std::uint32_t max_payload_bytes = kMaxSegmentBytes;
  FaultSchedule schedule{};
};

/// The frames that one rank has sent to another, including lost frames.
struct FakeTraffic {
  std::uint64_t frames = 0;
  std::uint64_t payload_bytes = 0;
  std::array<std::uint64_t, 16> frames_by_kind{};
  std::vector<std::uint64_t> bytes_by_stream;  ///< of payload

  [[nodiscard]] std::uint64_t of(FrameKind kind) const {
    return frames_by_kind.at(static_cast<std::size_t>(kind));
  }
};

/// An event that a rank finds when it polls.
struct FakeConnected {
  std::uint32_t peer;
};
struct FakeLost {
  FakeLane lane;
  std::string reason;
};
/// A complete frame. Its payload is where it was placed, in `memory`, or discarded (empty).
struct FakeArrival {
  FakeLane lane;
  Frame frame;
  std::byte* placed = nullptr;
  std::vector<std::byte> memory{};
  bool was_full = false;  ///< the sender may wait for room in this lane

  [[nodiscard]] std::span<const std::byte> payload() const {
    return placed != nullptr ? std::span<const std::byte>(placed, frame.length) : memory;
  }
};
/// The header of a frame whose payload is still in the sender's memory; the receiver answers with
/// land().
struct FakeOffer {
  FakeLane lane;
  Frame frame;
  std::uint64_t number;
  bool begun;  ///< whether it has a place already
};
/// A lane to another rank that was full has room again.
struct FakeDrained {};
using FakeEvent = std::variant<FakeConnected, FakeLost, FakeArrival, FakeOffer, FakeDrained>;

/// The receiving side of one rank in a FakeNetwork: the lanes to it, and the frames in flight on
/// them. Thread-safe. Its mutex guards all its fields, the life of the bell, and the senders'
/// memory to which packets refer. No other lock is taken under this mutex.
class FakePort {
 public:
  /// `options` must outlive the port.
  FakePort(const FakeOptions& options, std::uint32_t world_size);

  void attach(Bell bell, const std::vector<std::uint32_t>& peers);
  void connect(std::uint32_t peer);
  void detach();

  [[nodiscard]] bool ready(const FakeLane& lane);
  /// Returns the faults that the frame triggers, or nothing if the lane is full. Their effect on
  /// this lane takes place before the receiver can look, so that it does not depend on timing.
  std::optional<std::vector<Fault>> send(const FakeLane& lane, const Frame& frame,
                                         std::span<const std::byte> payload);
  /// Copies the data in flight from this memory of the sender.
  void forget_sources(std::uint32_t from, std::span<const std::byte> memory);
  /// Discards data that arrive for this memory of the receiver.
  void forget_places(std::uint32_t from, std::span<const std::byte> memory);
  /// Ends the lane after the data in flight have arrived.
  void finish(const FakeLane& lane, const std::string& reason);
  /// Ends the lane and drops the data in flight on it.
  void lose(const FakeLane& lane, const std::string& reason);
  void freeze(std::uint32_t from, Nanoseconds duration);
  /// Records that a lane from here that was full has room again.
  void drained();

  std::optional<FakeEvent> take(TimePoint now);
  std::optional<FakeArrival> land(const FakeOffer& offer, std::byte* place, TimePoint now);
  [[nodiscard]] TimePoint next_event();
  [[nodiscard]] FakeTraffic traffic(std::uint32_t from);

 private:
  /// A frame in flight, or (`end`) the loss of its stream.
  struct Packet {
    Frame frame;
    std::uint64_t number = 0;  ///< number in its lane
    TimePoint due;
    std::span<const std::byte> source;  ///< the sender's memory, if owned is empty
    std::vector<std::byte> owned;
    std::byte* placed = nullptr;  ///< while begun
    bool begun = false;
    bool discarded = false;  ///< the receiver has forgotten the memory in which it was placed
    bool end = false;
    std::string reason;

    [[nodiscard]] std::span<const std::byte> bytes() const {
      return source.empty() ? std::span<const std::byte>(owned) : source;
    }
    void own() {
      if (source.empty()) return;
      owned.assign(source.begin(), source.end());
      source = {};
    }
  };
  struct Queue {
    std::list<Packet> packets;
    std::uint64_t num_sent = 0;
    TimePoint last_due;
    TimePoint wire_free;
    bool dead = false;  ///< later frames vanish, as in a socket whose peer is gone
  };
  struct Inbound {
    std::vector<Queue> queues;  ///< by stream
    TimePoint frozen_until;
    FakeTraffic traffic;
  };
  struct Due {
    TimePoint time;
    FakeLane lane;
    bool operator>(const Due& other) const { return time > other.time; }
  };

  // Call these with the mutex held.
  Inbound& inbound(std::uint32_t from);
  Queue& queue(const FakeLane& lane);
  void ring() const;
  [[nodiscard]] TimePoint arrival_time(Queue& queue, const FakeLane& lane, std::size_t bytes) const;
  void end(Queue& queue, const FakeLane& lane, const std::string& reason, TimePoint due);
  void strike(const FakeLane& lane, const Fault& fault);
  void drop(const FakeLane& lane, const std::string& reason);
  void end_after_flight(const FakeLane& lane, const std::string& reason);
  std::optional<FakeEvent> take_head(const FakeLane& lane, TimePoint now);
  void begin(Packet& head, const FakeLane& lane, std::byte* place, TimePoint now);
  FakeArrival pop(const FakeLane& lane);

  const FakeOptions& options_;
  std::mutex mutex_;
  std::optional<Bell> bell_;
  std::deque<std::uint32_t> connected_;
  bool drained_ = false;
  std::vector<std::unique_ptr<Inbound>> inbound_;  ///< by sender; created at first use
  /// Has at least one entry for the first packet of each lane that take() has not returned. Entries
  /// that are too early or left over have no effect.
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace slipstream
