#include "transport/fake/fake_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/overlap.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

Nanoseconds nanoseconds(double count) { return Nanoseconds(static_cast<std::int64_t>(count)); }

}  // namespace

FakePort::FakePort(const FakeOptions& options, std::uint32_t world_size)
    : options_(options), inbound_(world_size) {}

FakePort::Inbound& FakePort::inbound(std::uint32_t from) {
  SLIPSTREAM_ASSERT(from < inbound_.size(), "rank ", from, " of ", inbound_.size());
  std::unique_ptr<Inbound>& found = inbound_[from];
  if (!found) {
    found = std::make_unique<Inbound>();
    found->queues.resize(options_.num_streams);
  }
  return *found;
}

FakePort::Queue& FakePort::queue(const FakeLane& lane) {
  SLIPSTREAM_ASSERT(lane.stream < options_.num_streams, "stream ", lane.stream, " of ",
                    options_.num_streams);
  return inbound(lane.from).queues[lane.stream];
}

void FakePort::ring() const {
  if (bell_) bell_->ring();
}

void FakePort::attach(Bell bell, const std::vector<std::uint32_t>& peers) {
  const std::scoped_lock lock(mutex_);
  bell_ = bell;
  connected_.insert(connected_.end(), peers.begin(), peers.end());
}

void FakePort::connect(std::uint32_t peer) {
  const std::scoped_lock lock(mutex_);
  connected_.push_back(peer);
  ring();
}

void FakePort::detach() {
  const std::scoped_lock lock(mutex_);
  bell_.reset();
  for (std::uint32_t from = 0; from < inbound_.size(); ++from) {
    for (Queue& lane : inbound(from).queues) {
      lane.dead = true;
      lane.packets.clear();
    }
  }
}

bool FakePort::ready(const FakeLane& lane) {
  const std::scoped_lock lock(mutex_);
  const Queue& sent = queue(lane);
  return sent.dead || sent.packets.size() < options_.capacity_frames;
}

TimePoint FakePort::arrival_time(Queue& queue, const FakeLane& lane, std::size_t bytes) const {
  TimePoint sent = Clock::now();
  if (options_.bytes_per_second > 0) {
    const double seconds = static_cast<double>(sizeof(Frame) + bytes) / options_.bytes_per_second;
    queue.wire_free = std::max(queue.wire_free, sent) + nanoseconds(seconds * 1e9);
    sent = queue.wire_free;
  }
  const double share = draw(options_.seed, Draw::kJitter, lane, queue.num_sent);
  const auto jitter = nanoseconds(static_cast<double>(options_.jitter.count()) * share);
  queue.last_due = std::max(queue.last_due, sent + options_.delay + jitter);
  return queue.last_due;
}

std::optional<std::vector<Fault>> FakePort::send(const FakeLane& lane, const Frame& frame,
                                                 std::span<const std::byte> payload) {
  const std::scoped_lock lock(mutex_);
  Queue& sent = queue(lane);
  if (!sent.dead && sent.packets.size() >= options_.capacity_frames) return std::nullopt;
  FakeTraffic& traffic = inbound(lane.from).traffic;
  traffic.frames += 1;
  traffic.payload_bytes += payload.size();
  if (traffic.bytes_by_stream.size() <= lane.stream)
    traffic.bytes_by_stream.resize(lane.stream + 1);
  traffic.bytes_by_stream[lane.stream] += payload.size();
  traffic.frames_by_kind.at(static_cast<std::size_t>(frame.kind)) += 1;
  if (sent.dead) return std::vector<Fault>();

  Packet packet;
  packet.frame = frame;
  packet.number = ++sent.num_sent;
  packet.due = arrival_time(sent, lane, payload.size());
  packet.source = payload;
  if (options_.copies_payload) packet.own();
  if (sent.packets.empty()) due_.push({packet.due, lane});
  sent.packets.push_back(std::move(packet));
  std::vector<Fault> faults =
      faults_after(options_.schedule, options_.seed, options_.num_streams, lane, sent.num_sent);
  for (const Fault& fault : faults) strike(lane, fault);
  ring();
  return faults;
}

void FakePort::strike(const FakeLane& lane, const Fault& fault) {
  switch (fault.action) {
    case Fault::Action::kLoseStream:
      return drop(lane, describe(fault));
    case Fault::Action::kLoseStreamLate:
      return end_after_flight(lane, describe(fault));
    case Fault::Action::kFreezeLink: {
      TimePoint& until = inbound(lane.from).frozen_until;
      until = std::max(until, Clock::now() + fault.duration);
      return;
    }
    case Fault::Action::kKillRank:
      if (fault.victim == lane.from || fault.victim == lane.to) drop(lane, describe(fault));
      return;
  }
}

void FakePort::forget_sources(std::uint32_t from, std::span<const std::byte> memory) {
  const std::scoped_lock lock(mutex_);
  for (Queue& lane : inbound(from).queues) {
    for (Packet& packet : lane.packets) {
      if (overlap(packet.source, memory)) packet.own();
    }
  }
}

void FakePort::forget_places(std::uint32_t from, std::span<const std::byte> memory) {
  const std::scoped_lock lock(mutex_);
  for (Queue& lane : inbound(from).queues) {
    if (lane.packets.empty()) continue;
    Packet& head = lane.packets.front();
    if (head.placed == nullptr || !overlap({head.placed, head.frame.length}, memory)) continue;
    head.placed = nullptr;
    head.discarded = true;
  }
}

void FakePort::end(Queue& queue, const FakeLane& lane, const std::string& reason, TimePoint due) {
  queue.dead = true;
  Packet packet;
  packet.end = true;
  packet.reason = reason;
  packet.due = due;
  due_.push({due, lane});
  queue.packets.push_back(std::move(packet));
  ring();
}

void FakePort::finish(const FakeLane& lane, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  end_after_flight(lane, reason);
}

void FakePort::end_after_flight(const FakeLane& lane, const std::string& reason) {
  Queue& sent = queue(lane);
  if (sent.dead) return;
  for (Packet& packet : sent.packets) packet.own();
  end(sent, lane, reason, std::max(Clock::now() + options_.delay, sent.last_due));
}

void FakePort::drop(const FakeLane& lane, const std::string& reason) {
  Queue& sent = queue(lane);
  if (sent.dead) return;
  sent.packets.clear();
  end(sent, lane, reason, Clock::now());
}

void FakePort::lose(const FakeLane& lane, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  drop(lane, reason);
}

void FakePort::freeze(std::uint32_t from, Nanoseconds duration) {
  const std::scoped_lock lock(mutex_);
  TimePoint& until = inbound(from).frozen_until;
  until = std::max(until, Clock::now() + duration);
}

void FakePort::drained() {
  const std::scoped_lock lock(mutex_);
  drained_ = true;
  ring();
}

std::optional<FakeEvent> FakePort::take(TimePoint now) {
  const std::scoped_lock lock(mutex_);
  if (!connected_.empty()) {
    const FakeConnected connected{connected_.front()};
    connected_.pop_front();
    return connected;
  }
  if (std::exchange(drained_, false)) return FakeDrained{};
  while (!due_.empty() && due_.top().time <= now) {
    const FakeLane lane = due_.top().lane;
    due_.pop();
    if (std::optional<FakeEvent> event = take_head(lane, now)) return event;
  }
  return std::nullopt;
}

std::optional<FakeEvent> FakePort::take_head(const FakeLane& lane, TimePoint now) {
  std::list<Packet>& packets = queue(lane).packets;
  if (packets.empty()) return std::nullopt;
  Packet& head = packets.front();
  const TimePoint due = std::max(head.due, inbound(lane.from).frozen_until);
  if (due > now) {
    due_.push({due, lane});
    return std::nullopt;
  }
  if (head.end) {
    FakeLost lost{lane, std::move(head.reason)};
    packets.clear();
    return lost;
  }
  if (options_.copies_payload) return pop(lane);
  return FakeOffer{lane, head.frame, head.number, head.begun};
}

FakeArrival FakePort::pop(const FakeLane& lane) {
  std::list<Packet>& packets = queue(lane).packets;
  Packet& head = packets.front();
  FakeArrival arrival{lane, head.frame, head.placed};
  arrival.was_full = packets.size() == options_.capacity_frames;
  if (head.placed == nullptr && !head.discarded) {
    head.own();
    arrival.memory = std::move(head.owned);
  } else if (const auto bytes = head.bytes(); head.placed != nullptr && !bytes.empty()) {
    std::memcpy(head.placed, bytes.data(), bytes.size());
  }
  packets.pop_front();
  if (!packets.empty()) due_.push({packets.front().due, lane});
  return arrival;
}

void FakePort::begin(Packet& head, const FakeLane& lane, std::byte* place, TimePoint now) {
  head.begun = true;
  head.placed = place;
  const bool splits =
      draw(options_.seed, Draw::kSplit, lane, head.number) < options_.split_probability;
  if (!splits) return;
  if (place != nullptr) std::memcpy(place, head.bytes().data(), head.frame.length / 2);
  head.due = now + std::max(options_.jitter, Nanoseconds(1));
}

std::optional<FakeArrival> FakePort::land(const FakeOffer& offer, std::byte* place, TimePoint now) {
  const std::scoped_lock lock(mutex_);
  std::list<Packet>& packets = queue(offer.lane).packets;
  if (packets.empty() || packets.front().number != offer.number) return std::nullopt;
  Packet& head = packets.front();
  if (!head.begun) begin(head, offer.lane, place, now);
  if (head.due > now) {
    due_.push({head.due, offer.lane});
    return std::nullopt;
  }
  return pop(offer.lane);
}

TimePoint FakePort::next_event() {
  const std::scoped_lock lock(mutex_);
  if (!connected_.empty() || drained_) return TimePoint::min();
  return due_.empty() ? TimePoint::max() : due_.top().time;
}

FakeTraffic FakePort::traffic(std::uint32_t from) {
  const std::scoped_lock lock(mutex_);
  return inbound(from).traffic;
}

}  // namespace slipstream
