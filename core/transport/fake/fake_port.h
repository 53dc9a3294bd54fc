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

/// How a FakeNetwork behaves; the default is fast, faultless and copies late, as tcp does.
struct FakeOptions {
  std::uint32_t num_streams = 2;  ///< of each pair of ranks; stream 0 is the control stream
  std::uint32_t capacity_frames =
      16;                        ///< undelivered frames of a lane, beyond which send() refuses
  Nanoseconds delay{0};          ///< from send() to arrival
  Nanoseconds jitter{0};         ///< at most this is added to each frame's delay: streams overtake
  double bytes_per_second = 0;   ///< of each lane; 0: without limit
  double split_probability = 0;  ///< of a payload being placed in one poll(), finished in another
  std::uint64_t seed = 1;        ///< of jitter, splits and random faults
  bool copies_payload = false;   ///< true: as shm (copied in send()), false: as tcp
  std::uint32_t max_payload_bytes = kMaxSegmentBytes;
  FaultSchedule schedule{};
};

/// What one rank has sent to another, lost frames included.
struct FakeTraffic {
  std::uint64_t frames = 0;
  std::uint64_t payload_bytes = 0;
  std::array<std::uint64_t, 16> frames_by_kind{};
  std::vector<std::uint64_t> bytes_by_stream;  ///< of payload

  [[nodiscard]] std::uint64_t of(FrameKind kind) const {
    return frames_by_kind.at(static_cast<std::size_t>(kind));
  }
};

/// What a rank finds when it polls.
struct FakeConnected {
  std::uint32_t peer;
};
struct FakeLost {
  FakeLane lane;
  std::string reason;
};
/// A frame that is whole, with its payload where it was placed, in `memory`, or discarded (empty).
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
/// The header of a frame whose payload is still at the sender; the answer is land().
struct FakeOffer {
  FakeLane lane;
  Frame frame;
  std::uint64_t number;
  bool begun;  ///< has a place already
};
/// A lane to another rank that was full is not any more.
struct FakeDrained {};
using FakeEvent = std::variant<FakeConnected, FakeLost, FakeArrival, FakeOffer, FakeDrained>;

/// Where one rank of a FakeNetwork is reached: the lanes to it and what is in flight on them.
/// Thread-safe; its mutex guards everything in it, the life of the bell, and the senders' memory
/// that packets refer to. No other lock is taken while it is held.
class FakePort {
 public:
  /// `options` must outlive the port.
  FakePort(const FakeOptions& options, std::uint32_t world_size);

  void attach(Bell bell, const std::vector<std::uint32_t>& peers);
  void connect(std::uint32_t peer);
  void detach();

  [[nodiscard]] bool ready(const FakeLane& lane);
  /// The faults that the frame sets off, or nothing when the lane is full. What those faults do to
  /// this lane is done before the receiver can look, so that it does not depend on timing.
  std::optional<std::vector<Fault>> send(const FakeLane& lane, const Frame& frame,
                                         std::span<const std::byte> payload);
  /// Copies what is in flight from this memory of the sender.
  void forget_sources(std::uint32_t from, std::span<const std::byte> memory);
  /// Discards what arrives for this memory of the receiver.
  void forget_places(std::uint32_t from, std::span<const std::byte> memory);
  /// The lane ends after what is in flight on it.
  void finish(const FakeLane& lane, const std::string& reason);
  /// What is in flight on the lane vanishes and the lane ends.
  void lose(const FakeLane& lane, const std::string& reason);
  void freeze(std::uint32_t from, Nanoseconds duration);
  /// One of the lanes from here was full and is not any more.
  void drained();

  std::optional<FakeEvent> take(TimePoint now);
  std::optional<FakeArrival> land(const FakeOffer& offer, std::byte* place, TimePoint now);
  [[nodiscard]] TimePoint next_event();
  [[nodiscard]] FakeTraffic traffic(std::uint32_t from);

 private:
  /// A frame on its way, or (`end`) the loss of its stream.
  struct Packet {
    Frame frame;
    std::uint64_t number = 0;  ///< in its lane
    TimePoint due;
    std::span<const std::byte> source;  ///< the sender's memory, if owned is empty
    std::vector<std::byte> owned;
    std::byte* placed = nullptr;  ///< while begun
    bool begun = false;
    bool discarded = false;  ///< the receiver has forgotten where it was placed
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
    bool dead = false;  ///< what is sent from now on vanishes, as in a socket whose peer is gone
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

  // All of these are called with the mutex held.
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
  std::vector<std::unique_ptr<Inbound>> inbound_;  ///< by sender, made when first used
  /// At least one entry for the first packet of each lane that take() has not handed out; entries
  /// may be early or left over, and mean nothing then.
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace slipstream
