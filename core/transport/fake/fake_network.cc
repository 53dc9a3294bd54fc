#include "transport/fake/fake_network.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <queue>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

bool overlap(const std::byte* begin, std::size_t bytes, std::span<const std::byte> memory) {
  const std::less<> before;
  return before(begin, memory.data() + memory.size()) && before(memory.data(), begin + bytes);
}

void check(const FakeOptions& options, std::uint32_t world_size) {
  if (world_size == 0 || options.num_streams == 0 || options.capacity_frames == 0) {
    fail(ErrorKind::kUsage, "a fake network of ", world_size, " ranks, ", options.num_streams,
         " streams and ", options.capacity_frames, " frames per lane: each must be at least 1");
  }
  const auto loses = [](const Fault& fault) { return fault.action == Fault::Action::kLoseStream; };
  const FaultSchedule& schedule = options.schedule;
  if (options.copies_payload &&
      (schedule.random.lose_stream > 0 || std::ranges::any_of(schedule.faults, loses))) {
    fail(ErrorKind::kUsage,
         "a fake network that copies payload promises that a live peer misses none of it; a "
         "schedule that loses single streams needs copies_payload = false");
  }
}

}  // namespace

/// A frame on its way, or (`end`) the loss of its stream.
struct FakeNetwork::Packet {
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
    owned.assign(source.begin(), source.end());
    source = {};
  }
};

/// A lane at its receiver.
struct FakeNetwork::Queue {
  std::list<Packet> packets;
  std::uint64_t num_sent = 0;
  TimePoint last_due;
  TimePoint wire_free;
  bool dead = false;  ///< what is sent from now on vanishes, as in a socket whose peer is gone
};

struct FakeNetwork::Inbound {
  std::vector<Queue> queues;
  TimePoint frozen_until;
  FakeTraffic traffic;
};

/// Where one rank is reached. The mutex guards everything in it, the sender's memory that its
/// packets refer to, and the life of the bell.
struct FakeNetwork::Port {
  struct Due {
    TimePoint time;
    FakeLane lane;
    bool operator>(const Due& other) const { return time > other.time; }
  };

  std::mutex mutex;
  std::optional<Bell> bell;
  std::deque<std::uint32_t> connected;
  bool drained = false;
  std::vector<std::unique_ptr<Inbound>> inbound;  ///< by sender, made when first used
  /// At least one entry for the first packet of each lane that take() has not handed out; entries
  /// may be early or left over, and mean nothing then.
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due;

  void ring() const {
    if (bell) bell->ring();
  }
};

FakeNetwork::FakeNetwork(std::uint32_t world_size, FakeOptions options)
    : options_(std::move(options)) {
  check(options_, world_size);
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    ports_.push_back(std::make_unique<Port>());
    ports_.back()->inbound.resize(world_size);
  }
}

FakeNetwork::~FakeNetwork() = default;

std::uint32_t FakeNetwork::world_size() const { return static_cast<std::uint32_t>(ports_.size()); }

FakeNetwork::Port& FakeNetwork::port(std::uint32_t rank) const {
  SLIPSTREAM_ASSERT(rank < ports_.size(), "rank ", rank, " of ", ports_.size());
  return *ports_[rank];
}

FakeNetwork::Inbound& FakeNetwork::inbound(Port& port, std::uint32_t from) const {
  SLIPSTREAM_ASSERT(from < ports_.size(), "rank ", from, " of ", ports_.size());
  std::unique_ptr<Inbound>& inbound = port.inbound[from];
  if (!inbound) {
    inbound = std::make_unique<Inbound>();
    inbound->queues.resize(options_.num_streams);
  }
  return *inbound;
}

FakeNetwork::Queue& FakeNetwork::queue(Port& port, const FakeLane& lane) const {
  SLIPSTREAM_ASSERT(lane.stream < options_.num_streams, "stream ", lane.stream, " of ",
                    options_.num_streams);
  return inbound(port, lane.from).queues[lane.stream];
}

void FakeNetwork::attach(std::uint32_t rank, Bell bell) {
  const std::scoped_lock lock(mutex_);
  Port& own = port(rank);
  {
    const std::scoped_lock own_lock(own.mutex);
    own.bell = bell;
    own.connected.insert(own.connected.end(), attached_.begin(), attached_.end());
  }
  for (const std::uint32_t peer : attached_) {
    Port& other = port(peer);
    const std::scoped_lock other_lock(other.mutex);
    other.connected.push_back(rank);
    other.ring();
  }
  attached_.push_back(rank);
}

void FakeNetwork::detach(std::uint32_t rank) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase(attached_, rank);
  }
  Port& own = port(rank);
  const TimePoint now = Clock::now();
  for (std::uint32_t peer = 0; peer < world_size(); ++peer) {
    if (peer == rank) continue;
    Port& other = port(peer);
    const std::scoped_lock lock(other.mutex);
    for (std::uint32_t stream = 0; stream < options_.num_streams; ++stream) {
      Queue& queue = inbound(other, rank).queues[stream];
      if (queue.dead) continue;
      queue.dead = true;
      for (Packet& packet : queue.packets) packet.own();
      Packet end;
      end.end = true;
      end.reason = concat("rank ", rank, " closed the connection");
      end.due = std::max(now + options_.delay, queue.last_due);
      other.due.push({end.due, {rank, peer, stream}});
      queue.packets.push_back(std::move(end));
    }
    other.ring();
  }
  const std::scoped_lock lock(own.mutex);
  own.bell.reset();
  for (std::uint32_t peer = 0; peer < world_size(); ++peer) {
    if (peer == rank) continue;
    for (Queue& queue : inbound(own, peer).queues) {
      queue.dead = true;
      queue.packets.clear();
    }
  }
}

bool FakeNetwork::ready(const FakeLane& lane) const {
  Port& receiver = port(lane.to);
  const std::scoped_lock lock(receiver.mutex);
  const Queue& lane_queue = queue(receiver, lane);
  return lane_queue.dead || lane_queue.packets.size() < options_.capacity_frames;
}

TimePoint FakeNetwork::arrival_time(Queue& queue, const FakeLane& lane, std::size_t bytes) const {
  const auto scaled = [](double nanoseconds) {
    return Nanoseconds(static_cast<std::int64_t>(nanoseconds));
  };
  TimePoint sent = Clock::now();
  if (options_.bytes_per_second > 0) {
    const double seconds = static_cast<double>(sizeof(Frame) + bytes) / options_.bytes_per_second;
    queue.wire_free = std::max(queue.wire_free, sent) + scaled(seconds * 1e9);
    sent = queue.wire_free;
  }
  const double jitter = static_cast<double>(options_.jitter.count());
  const double share = draw(options_.seed, Draw::kJitter, lane, queue.num_sent);
  const TimePoint due = sent + options_.delay + scaled(jitter * share);
  queue.last_due = std::max(queue.last_due, due);
  return queue.last_due;
}

bool FakeNetwork::send(const FakeLane& lane, const Frame& frame,
                       std::span<const std::byte> payload) {
  SLIPSTREAM_ASSERT(frame.length == payload.size() && frame.length <= options_.max_payload_bytes,
                    "frame.length ", frame.length, ", payload ", payload.size(), ", allowed ",
                    options_.max_payload_bytes);
  std::vector<Fault> faults;
  {
    Port& receiver = port(lane.to);
    const std::scoped_lock lock(receiver.mutex);
    Queue& lane_queue = queue(receiver, lane);
    if (!lane_queue.dead && lane_queue.packets.size() >= options_.capacity_frames) return false;
    FakeTraffic& traffic = inbound(receiver, lane.from).traffic;
    traffic.frames += 1;
    traffic.payload_bytes += payload.size();
    traffic.frames_by_kind.at(static_cast<std::size_t>(frame.kind)) += 1;
    if (lane_queue.dead) return true;
    Packet packet;
    packet.frame = frame;
    packet.number = ++lane_queue.num_sent;
    packet.source = payload;
    packet.due = arrival_time(lane_queue, lane, payload.size());
    if (options_.copies_payload) packet.own();
    if (lane_queue.packets.empty()) receiver.due.push({packet.due, lane});
    lane_queue.packets.push_back(std::move(packet));
    faults = faults_after(options_.schedule, options_.seed, options_.num_streams, lane,
                          lane_queue.num_sent);
    // Before the receiver can look: whether this frame arrives must not depend on timing.
    for (const Fault& fault : faults) strike_lane(receiver, lane, fault);
    receiver.ring();
  }
  for (const Fault& fault : faults) strike(fault);
  return true;
}

void FakeNetwork::forget(std::uint32_t rank, std::uint32_t peer,
                         std::span<const std::byte> memory) {
  {
    Port& receiver = port(peer);
    const std::scoped_lock lock(receiver.mutex);
    for (Queue& sent : inbound(receiver, rank).queues) {
      for (Packet& packet : sent.packets) {
        if (overlap(packet.source.data(), packet.source.size(), memory)) packet.own();
      }
    }
  }
  Port& own = port(rank);
  const std::scoped_lock lock(own.mutex);
  for (Queue& arriving : inbound(own, peer).queues) {
    if (arriving.packets.empty()) continue;
    Packet& head = arriving.packets.front();
    if (head.placed == nullptr || !overlap(head.placed, head.frame.length, memory)) continue;
    head.placed = nullptr;
    head.discarded = true;
  }
}

std::optional<FakeEvent> FakeNetwork::take(std::uint32_t rank, TimePoint now) {
  std::uint32_t waiting = rank;
  std::optional<FakeEvent> event;
  {
    Port& own = port(rank);
    const std::scoped_lock lock(own.mutex);
    if (!own.connected.empty()) {
      const FakeConnected connected{own.connected.front()};
      own.connected.pop_front();
      return connected;
    }
    if (std::exchange(own.drained, false)) return FakeDrained{};
    while (!event && !own.due.empty() && own.due.top().time <= now) {
      const FakeLane lane = own.due.top().lane;
      own.due.pop();
      const std::size_t held = queue(own, lane).packets.size();
      event = take_head(own, lane, now);
      const bool delivered = event && std::holds_alternative<FakeArrival>(*event);
      if (delivered && held == options_.capacity_frames) waiting = lane.from;
    }
  }
  if (waiting != rank) wake_sender(waiting);
  return event;
}

std::optional<FakeEvent> FakeNetwork::take_head(Port& port, const FakeLane& lane, TimePoint now) {
  Inbound& from = inbound(port, lane.from);
  std::list<Packet>& packets = from.queues[lane.stream].packets;
  if (packets.empty()) return std::nullopt;
  Packet& head = packets.front();
  const TimePoint due = std::max(head.due, from.frozen_until);
  if (due > now) {
    port.due.push({due, lane});
    return std::nullopt;
  }
  if (head.end) {
    FakeLost lost{lane, std::move(head.reason)};
    packets.clear();
    return lost;
  }
  if (!options_.copies_payload) return FakeOffer{lane, head.frame, head.number, head.begun};
  FakeArrival arrival{lane, head.frame, nullptr, std::move(head.owned)};
  pop(port, lane);
  return arrival;
}

/// Takes the first packet off; true when the lane was full.
bool FakeNetwork::pop(Port& port, const FakeLane& lane) {
  std::list<Packet>& packets = queue(port, lane).packets;
  const bool was_full = packets.size() == options_.capacity_frames;
  packets.pop_front();
  if (!packets.empty()) port.due.push({packets.front().due, lane});
  return was_full;
}

std::optional<FakeArrival> FakeNetwork::land(const FakeOffer& offer, std::byte* place,
                                             TimePoint now) {
  const FakeLane& lane = offer.lane;
  FakeArrival arrival{lane, offer.frame, nullptr, {}};
  bool was_full = false;
  {
    Port& own = port(lane.to);
    const std::scoped_lock lock(own.mutex);
    std::list<Packet>& packets = queue(own, lane).packets;
    if (packets.empty() || packets.front().number != offer.number) return std::nullopt;
    Packet& head = packets.front();
    const std::span<const std::byte> bytes = head.bytes();
    const double split = draw(options_.seed, Draw::kSplit, lane, head.number);
    if (!head.begun && split < options_.split_probability) {
      head.begun = true;
      head.placed = place;
      if (place != nullptr) std::memcpy(place, bytes.data(), bytes.size() / 2);
      head.due = now + std::max(options_.jitter, Nanoseconds(1));
      own.due.push({head.due, lane});
      return std::nullopt;
    }
    arrival.placed = head.begun ? head.placed : place;
    if (arrival.placed != nullptr && !bytes.empty()) {
      std::memcpy(arrival.placed, bytes.data(), bytes.size());
    } else if (!head.discarded) {
      arrival.memory.assign(bytes.begin(), bytes.end());
    }
    was_full = pop(own, lane);
  }
  if (was_full) wake_sender(lane.from);
  return arrival;
}

TimePoint FakeNetwork::next_event(std::uint32_t rank) const {
  Port& own = port(rank);
  const std::scoped_lock lock(own.mutex);
  if (!own.connected.empty() || own.drained) return TimePoint::min();
  return own.due.empty() ? TimePoint::max() : own.due.top().time;
}

void FakeNetwork::wake_sender(std::uint32_t rank) {
  Port& sender = port(rank);
  const std::scoped_lock lock(sender.mutex);
  sender.drained = true;
  sender.ring();
}

/// What is in flight vanishes and the receiver is told; the port is locked by the caller.
void FakeNetwork::lose_lane(Port& port, const FakeLane& lane, const std::string& reason) const {
  Queue& lane_queue = queue(port, lane);
  if (lane_queue.dead) return;
  lane_queue.dead = true;
  lane_queue.packets.clear();
  Packet end;
  end.end = true;
  end.reason = reason;
  end.due = Clock::now();
  port.due.push({end.due, lane});
  lane_queue.packets.push_back(std::move(end));
  port.ring();
}

void FakeNetwork::cut(const FakeLane& lane, const std::string& reason) {
  const FakeLane back{lane.to, lane.from, lane.stream};
  for (const FakeLane& way : {lane, back}) {
    Port& receiver = port(way.to);
    const std::scoped_lock lock(receiver.mutex);
    lose_lane(receiver, way, reason);
  }
}

void FakeNetwork::lose_stream(std::uint32_t rank, std::uint32_t peer, std::uint32_t stream) {
  if (options_.copies_payload) {
    fail(ErrorKind::kUsage, "stream ", stream, " of ranks ", rank, " and ", peer,
         " cannot be lost alone: the network copies payload; use kill_rank()");
  }
  cut({rank, peer, stream}, "lost by the test");
}

void FakeNetwork::freeze_link(std::uint32_t from, std::uint32_t to, Nanoseconds duration) {
  Port& receiver = port(to);
  const std::scoped_lock lock(receiver.mutex);
  TimePoint& until = inbound(receiver, from).frozen_until;
  until = std::max(until, Clock::now() + duration);
}

void FakeNetwork::kill_rank(std::uint32_t rank) {
  for (std::uint32_t peer = 0; peer < world_size(); ++peer) {
    for (std::uint32_t stream = 0; peer != rank && stream < options_.num_streams; ++stream) {
      cut({rank, peer, stream}, concat("rank ", rank, " was killed"));
    }
  }
}

void FakeNetwork::strike_lane(Port& port, const FakeLane& lane, const Fault& fault) const {
  const bool kills = fault.action == Fault::Action::kKillRank &&
                     (fault.victim == lane.from || fault.victim == lane.to);
  if (fault.action == Fault::Action::kFreezeLink) {
    TimePoint& until = inbound(port, lane.from).frozen_until;
    until = std::max(until, Clock::now() + fault.duration);
  } else if (kills || fault.action == Fault::Action::kLoseStream) {
    lose_lane(port, lane, describe(fault));
  }
}

void FakeNetwork::strike(const Fault& fault) {
  {
    const std::scoped_lock lock(mutex_);
    happened_.push_back(fault);
  }
  switch (fault.action) {
    case Fault::Action::kLoseStream:
      return cut(fault.lane, describe(fault));
    case Fault::Action::kFreezeLink:
      return;  // all of it happened in strike_lane()
    case Fault::Action::kKillRank:
      return kill_rank(fault.victim);
  }
}

FakeTraffic FakeNetwork::traffic(std::uint32_t from, std::uint32_t to) const {
  Port& receiver = port(to);
  const std::scoped_lock lock(receiver.mutex);
  return inbound(receiver, from).traffic;
}

std::vector<Fault> FakeNetwork::happened() const {
  const std::scoped_lock lock(mutex_);
  return happened_;
}

}  // namespace slipstream
