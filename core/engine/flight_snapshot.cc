#include <algorithm>
#include <utility>

#include "engine/failures.h"

// The state of an engine for flight records.
namespace slipstream {
namespace {

std::int64_t nanoseconds(TimePoint at) { return at.time_since_epoch().count(); }

std::string state_of(const Peer& peer) {
  if (peer.left()) return "left";
  if (peer.gone()) return "gone";
  return peer.link() == nullptr ? "connecting" : "connected";
}

FlightPeer describe(const Peer& peer, const std::string& host) {
  FlightPeer described{.rank = peer.rank(),
                       .host = host,
                       .connection = "",
                       .state = state_of(peer),
                       .why = peer.why_gone(),
                       .ended = nanoseconds(peer.ended()),
                       .heard = nanoseconds(peer.heard()),
                       .bytes_sent = peer.bytes_sent(),
                       .bytes_received = peer.bytes_received()};
  const Link* link = peer.link();
  if (link == nullptr) return described;
  described.connection = link->describe();
  described.streams = link->num_streams();
  for (std::uint32_t stream = 0; stream < described.streams; ++stream) {
    if (!peer.gone() && link->alive(stream)) ++described.streams_alive;
  }
  return described;
}

FlightGroup describe(const Group& group) {
  FlightGroup described{.name = group.name(),
                        .ranks = group.ranks(),
                        .started = group.started,
                        .submitted = group.submitted,
                        .failure = group.failure ? group.failure->what() : ""};
  described.submitted[group.rank()] = group.started;
  return described;
}

}  // namespace

FlightSnapshot Failures::snapshot() const {
  FlightSnapshot all;
  all.rank = world_.identity.rank;
  all.world_size = world_.identity.world_size;
  all.epoch = world_.identity.epoch;
  all.at = nanoseconds(world_.now);
  all.ended_operations = world_.flight.ended_operations();
  all.operations = world_.flight.operations();
  auto in_flight = operations_in_flight();
  std::ranges::sort(in_flight, {}, [](const auto& operation) { return operation->order(); });
  for (const auto& operation : in_flight) {
    OperationRecord& record = all.operations.emplace_back();
    Operations::write_record(*operation, record);
    Operations::write_waits(*operation, record);
  }
  all.events = world_.flight.events();
  for (const auto& peer : world_.peers) {
    if (peer) all.peers.push_back(describe(*peer, world_.host_names[peer->rank()]));
  }
  for (const auto& [id, group] : world_.groups) all.groups.push_back(describe(*group));
  return all;
}

}  // namespace slipstream
