#include "transport/fake/fake_network.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "slipstream/error.h"

namespace slipstream {
namespace {

void check(const FakeOptions& options, std::uint32_t world_size) {
  if (world_size == 0 || options.num_streams == 0 || options.capacity_frames == 0) {
    fail(ErrorKind::kUsage, "a fake network of ", world_size, " ranks, ", options.num_streams,
         " streams and ", options.capacity_frames, " frames per lane: each must be at least 1");
  }
  const auto loses = [](const Fault& fault) { return loses_stream(fault.action); };
  const FaultSchedule& schedule = options.schedule;
  const RandomFaults& random = schedule.random;
  if (options.copies_payload && (random.lose_stream > 0 || random.lose_stream_late > 0 ||
                                 std::ranges::any_of(schedule.faults, loses))) {
    fail(ErrorKind::kUsage,
         "a fake network that copies payload promises that a live peer misses none of it; a "
         "schedule that loses single streams needs copies_payload = false");
  }
}

}  // namespace

FakeNetwork::FakeNetwork(std::uint32_t world_size, FakeOptions options)
    : options_(std::move(options)) {
  check(options_, world_size);
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    ports_.push_back(std::make_unique<FakePort>(options_, world_size));
  }
}

std::uint32_t FakeNetwork::world_size() const { return static_cast<std::uint32_t>(ports_.size()); }

FakePort& FakeNetwork::port(std::uint32_t rank) const {
  SLIPSTREAM_ASSERT(rank < ports_.size(), "rank ", rank, " of ", ports_.size());
  return *ports_[rank];
}

void FakeNetwork::attach(std::uint32_t rank, Bell bell) {
  const std::scoped_lock lock(mutex_);
  // This rank comes first: a peer that has been told may send at once, and this rank must know the
  // peer by then.
  port(rank).attach(bell, attached_);
  for (const std::uint32_t peer : attached_) port(peer).connect(rank);
  attached_.push_back(rank);
}

void FakeNetwork::detach(std::uint32_t rank) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase(attached_, rank);
  }
  const std::string reason = concat("rank ", rank, " closed the connection");
  for (std::uint32_t peer = 0; peer < world_size(); ++peer) {
    for (std::uint32_t stream = 0; peer != rank && stream < options_.num_streams; ++stream) {
      port(peer).finish({rank, peer, stream}, reason);
    }
  }
  port(rank).detach();
}

bool FakeNetwork::ready(const FakeLane& lane) const { return port(lane.to).ready(lane); }

bool FakeNetwork::send(const FakeLane& lane, const Frame& frame,
                       std::span<const std::byte> payload) {
  SLIPSTREAM_ASSERT(frame.length == payload.size() && frame.length <= options_.max_payload_bytes,
                    "frame.length ", frame.length, ", payload ", payload.size(), ", allowed ",
                    options_.max_payload_bytes);
  std::uint32_t sender = lane.from;
  if (failing_sender_.compare_exchange_strong(sender, kNobody)) {
    fail(ErrorKind::kInternal, "send failed, as rank ", lane.from, " was told to");
  }
  const auto faults = port(lane.to).send(lane, frame, payload);
  if (!faults) return false;
  for (const Fault& fault : *faults) {
    {
      const std::scoped_lock lock(mutex_);
      happened_.push_back(fault);
    }
    if (loses_stream(fault.action)) cut(lane, slipstream::describe(fault));
    if (fault.action == Fault::Action::kKillRank)
      cut_all(fault.victim, slipstream::describe(fault));
  }
  return true;
}

void FakeNetwork::forget(std::uint32_t rank, std::uint32_t peer,
                         std::span<const std::byte> memory) {
  port(peer).forget_sources(rank, memory);
  port(rank).forget_places(peer, memory);
}

std::optional<FakeEvent> FakeNetwork::take(std::uint32_t rank, TimePoint now) {
  std::optional<FakeEvent> event = port(rank).take(now);
  const auto* arrival = event ? std::get_if<FakeArrival>(&*event) : nullptr;
  if (arrival != nullptr && arrival->was_full) port(arrival->lane.from).drained();
  return event;
}

std::optional<FakeArrival> FakeNetwork::land(const FakeOffer& offer, std::byte* place,
                                             TimePoint now) {
  std::optional<FakeArrival> arrival = port(offer.lane.to).land(offer, place, now);
  if (arrival && arrival->was_full) port(offer.lane.from).drained();
  return arrival;
}

TimePoint FakeNetwork::next_event(std::uint32_t rank) const { return port(rank).next_event(); }

void FakeNetwork::cut(const FakeLane& lane, const std::string& reason) {
  port(lane.to).lose(lane, reason);
  port(lane.from).lose({lane.to, lane.from, lane.stream}, reason);
}

void FakeNetwork::cut_all(std::uint32_t rank, const std::string& reason) {
  for (std::uint32_t peer = 0; peer < world_size(); ++peer) {
    for (std::uint32_t stream = 0; peer != rank && stream < options_.num_streams; ++stream) {
      cut({rank, peer, stream}, reason);
    }
  }
}

void FakeNetwork::lose_stream(std::uint32_t rank, std::uint32_t peer, std::uint32_t stream) {
  if (options_.copies_payload) {
    fail(ErrorKind::kUsage, "stream ", stream, " of ranks ", rank, " and ", peer,
         " cannot be lost alone: the network copies payload; use kill_rank()");
  }
  cut({rank, peer, stream}, concat("stream ", stream, " was cut"));
}

void FakeNetwork::freeze_link(std::uint32_t from, std::uint32_t to, Nanoseconds duration) {
  port(to).freeze(from, duration);
}

void FakeNetwork::kill_rank(std::uint32_t rank) {
  cut_all(rank, concat("rank ", rank, " was killed"));
}

FakeTraffic FakeNetwork::traffic(std::uint32_t from, std::uint32_t to) const {
  return port(to).traffic(from);
}

std::vector<Fault> FakeNetwork::happened() const {
  const std::scoped_lock lock(mutex_);
  return happened_;
}

}  // namespace slipstream
