#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
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
/// A frame that is whole, with its payload where it was placed, in `memory`, or discarded (null).
struct FakeArrival {
  FakeLane lane;
  Frame frame;
  std::byte* placed = nullptr;
  std::vector<std::byte> memory;

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
/// A lane that was full is not any more.
struct FakeDrained {};
using FakeEvent = std::variant<FakeConnected, FakeLost, FakeArrival, FakeOffer, FakeDrained>;

/// The wires between the ranks (threads) of one process. Thread-safe: each rank has a port, where
/// frames for it wait, and the port's mutex is the only lock that is held. Outlives its transports.
class FakeNetwork {
 public:
  FakeNetwork(std::uint32_t world_size, FakeOptions options);
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;
  ~FakeNetwork();

  [[nodiscard]] std::uint32_t world_size() const;
  [[nodiscard]] const FakeOptions& options() const { return options_; }

  /// Faults at once, from any thread; a schedule sets them off by frame counts.
  void lose_stream(std::uint32_t rank, std::uint32_t peer, std::uint32_t stream);
  void freeze_link(std::uint32_t from, std::uint32_t to, Nanoseconds duration);
  void kill_rank(std::uint32_t rank);

  [[nodiscard]] FakeTraffic traffic(std::uint32_t from, std::uint32_t to) const;
  /// The faults of the schedule that have happened; as the `faults` of another schedule, they
  /// replay a random run.
  [[nodiscard]] std::vector<Fault> happened() const;

  // What follows is for FakeTransport and FakeLink.
  void attach(std::uint32_t rank, Bell bell);
  void detach(std::uint32_t rank);
  [[nodiscard]] bool ready(const FakeLane& lane) const;
  bool send(const FakeLane& lane, const Frame& frame, std::span<const std::byte> payload);
  void forget(std::uint32_t rank, std::uint32_t peer, std::span<const std::byte> memory);
  /// The next thing that is due at `rank` by `now`.
  std::optional<FakeEvent> take(std::uint32_t rank, TimePoint now);
  /// Moves an offered payload to `place`, or to memory of its own if that is null. Nothing is
  /// returned when only a part moved, or when the stream has died since the offer.
  std::optional<FakeArrival> land(const FakeOffer& offer, std::byte* place, TimePoint now);
  [[nodiscard]] TimePoint next_event(std::uint32_t rank) const;

 private:
  struct Packet;
  struct Queue;
  struct Inbound;
  struct Port;

  [[nodiscard]] Port& port(std::uint32_t rank) const;
  Inbound& inbound(Port& port, std::uint32_t from) const;
  Queue& queue(Port& port, const FakeLane& lane) const;
  [[nodiscard]] TimePoint arrival_time(Queue& queue, const FakeLane& lane, std::size_t bytes) const;
  std::optional<FakeEvent> take_head(Port& port, const FakeLane& lane, TimePoint now);
  bool pop(Port& port, const FakeLane& lane);
  void lose_lane(Port& port, const FakeLane& lane, const std::string& reason) const;
  void cut(const FakeLane& lane, const std::string& reason);
  void wake_sender(std::uint32_t rank);
  void strike_lane(Port& port, const FakeLane& lane, const Fault& fault) const;
  void strike(const Fault& fault);

  const FakeOptions options_;
  std::vector<std::unique_ptr<Port>> ports_;
  mutable std::mutex mutex_;  // guards attached_ and happened_
  std::vector<std::uint32_t> attached_;
  std::vector<Fault> happened_;
};

}  // namespace slipstream
