#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "transport/fake/fake_port.h"
#include "transport/fake/fault.h"
#include "transport/frame.h"

namespace slipstream {

/// The connections between the ranks (threads) of one process. Thread-safe. It must outlive its
/// transports.
class FakeNetwork {
 public:
  FakeNetwork(std::uint32_t world_size, FakeOptions options);
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  [[nodiscard]] std::uint32_t world_size() const;
  [[nodiscard]] const FakeOptions& options() const { return options_; }

  /// Immediate faults, from any thread; a schedule triggers faults by frame counts.
  void lose_stream(std::uint32_t rank, std::uint32_t peer, std::uint32_t stream);
  void freeze_link(std::uint32_t from, std::uint32_t to, Nanoseconds duration);
  void kill_rank(std::uint32_t rank);
  /// Makes the next send() of the rank throw, as an error in a transport would.
  void fail_next_send(std::uint32_t rank) { failing_sender_.store(rank); }

  [[nodiscard]] FakeTraffic traffic(std::uint32_t from, std::uint32_t to) const;
  /// The faults of the schedule that have happened. They replay a random run if another schedule
  /// has them as its `faults`.
  [[nodiscard]] std::vector<Fault> happened() const;

  // The functions below are for FakeTransport and FakeLink.
  void attach(std::uint32_t rank, Bell bell);
  /// Lets the frames that the rank has sent arrive, and then ends its lanes.
  void detach(std::uint32_t rank);
  [[nodiscard]] bool ready(const FakeLane& lane) const;
  bool send(const FakeLane& lane, const Frame& frame, std::span<const std::byte> payload);
  void forget(std::uint32_t rank, std::uint32_t peer, std::span<const std::byte> memory);
  /// The next event that is due at `rank` by `now`.
  std::optional<FakeEvent> take(std::uint32_t rank, TimePoint now);
  /// Moves an offered payload to `place`, or to its own memory if `place` is null. Returns nothing
  /// if only a part was moved, or if the stream has died since the offer.
  std::optional<FakeArrival> land(const FakeOffer& offer, std::byte* place, TimePoint now);
  [[nodiscard]] TimePoint next_event(std::uint32_t rank) const;

 private:
  [[nodiscard]] FakePort& port(std::uint32_t rank) const;
  /// Cuts both directions of the stream.
  void cut(const FakeLane& lane, const std::string& reason);
  void cut_all(std::uint32_t rank, const std::string& reason);

  const FakeOptions options_;
  std::vector<std::unique_ptr<FakePort>> ports_;
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  std::atomic<std::uint32_t> failing_sender_{kNobody};
  mutable std::mutex mutex_;  // guards attached_ and happened_
  std::vector<std::uint32_t> attached_;
  std::vector<Fault> happened_;
};

}  // namespace slipstream
