#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/flight.h"
#include "engine/group.h"
#include "engine/options.h"
#include "engine/peer.h"
#include "slipstream/log.h"
#include "slipstream/stats.h"
#include "topology/layout.h"
#include "transport/identity.h"

namespace slipstream {

/// The state that the parts of an engine share: this rank, its peers and groups, and the time. Only
/// the driver touches it, except for the constants.
struct World {
  const Identity identity;
  const EngineOptions options;
  const Log log;

  std::vector<std::unique_ptr<Peer>> peers{};  ///< by rank; nullptr at this one
  std::vector<std::string> host_names{};       ///< by rank
  std::vector<Place> places{};                 ///< by rank
  std::unordered_map<std::uint64_t, std::shared_ptr<Group>> groups{};  ///< by id
  std::unordered_map<std::uint64_t, std::uint64_t> closed_groups{};    ///< id to operations started
  Stats stats{};
  Flight flight{};
  TimePoint now{};        ///< time at which the current poll began
  TimePoint last_poll{};  ///< time at which the previous poll began
  bool closed = false;    ///< whether goodbye was said

  /// The peer that is member `rank` of the group; not this rank.
  [[nodiscard]] Peer& peer_of(const Group& group, std::uint32_t rank) const {
    return *peers[group.ranks()[rank]];
  }
  /// The group with this id, if this rank has it and has not closed it; otherwise nullptr.
  [[nodiscard]] Group* group_with(std::uint64_t id) const;
  /// "rank 3 on host b", for messages about a rank that is not connected.
  [[nodiscard]] std::string rank_on_host(std::uint32_t rank) const;
  /// A rank with its host and its connection, for messages.
  [[nodiscard]] std::string name_of(std::uint32_t rank) const;
  /// Notes an event that happened now; `rank` is the other rank, or kNoRank.
  void note(FlightEvent::Kind kind, std::uint32_t rank, const Group* group, std::uint64_t sequence,
            std::string text);
  [[nodiscard]] Frame frame_for(FrameKind kind, const Group& group, std::uint64_t sequence) const;
  /// Sends a control frame to all other members.
  void broadcast(const Group& group, const Frame& frame, std::span<const std::byte> payload) const;
  /// Counts consumed eager bytes of the peer, and returns its credit from time to time.
  void release_eager(Peer& peer, std::uint64_t bytes) const;
};

}  // namespace slipstream
