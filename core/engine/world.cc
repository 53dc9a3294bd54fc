#include "engine/world.h"

#include <utility>

namespace slipstream {

Group* World::group_with(std::uint64_t id) const {
  const auto found = groups.find(id);
  return found == groups.end() ? nullptr : found->second.get();
}

std::string World::rank_on_host(std::uint32_t rank) const {
  const std::string& host = host_names[rank];
  return concat("rank ", rank, host.empty() ? "" : " on host " + host);
}

std::string World::name_of(std::uint32_t rank) const {
  std::string name = concat("rank ", rank);
  if (rank == identity.rank) return name;
  const Link* link = peers[rank]->link();
  const std::string where = link == nullptr ? "not connected" : link->describe();
  return concat(name, " (", host_names[rank].empty() ? "" : host_names[rank] + ", ", where, ")");
}

void World::note(FlightEvent::Kind kind, std::uint32_t rank, const Group* group,
                 std::uint64_t sequence, std::string text) {
  flight.note({kind, now.time_since_epoch().count(), rank, group == nullptr ? "" : group->name(),
               sequence, std::move(text)});
}

Frame World::frame_for(FrameKind kind, const Group& group, std::uint64_t sequence) const {
  Frame frame;
  frame.kind = kind;
  frame.epoch = identity.epoch;
  frame.group = group.id();
  frame.sequence = sequence;
  return frame;
}

void World::broadcast(const Group& group, const Frame& frame,
                      std::span<const std::byte> payload) const {
  for (const std::uint32_t rank : group.ranks()) {
    if (rank != identity.rank) peers[rank]->send_control(frame, payload);
  }
}

void World::release_eager(Peer& peer, std::uint64_t bytes) const {
  peer.eager_consumed += bytes;
  if (peer.eager_consumed - peer.eager_reported < options.eager_pool_bytes / 4) return;
  peer.eager_reported = peer.eager_consumed;
  Frame frame;
  frame.kind = FrameKind::kCredit;
  frame.offset = peer.eager_consumed;
  peer.send_control(frame, {});
}

}  // namespace slipstream
