#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

/// Where a rank runs. Equal hosts are one host, equal racks one rack.
struct Place {
  std::string host, rack;
};

/// Tells this host from others: processes with equal texts can share memory.
std::string identify_host();

/// One dimension of a rank's surroundings: the ranks that differ from it in this coordinate only.
struct Dimension {
  std::vector<std::uint32_t> members;  ///< ranks in the group, by coordinate, this one among them
  std::uint32_t index = 0;             ///< this rank's coordinate

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  [[nodiscard]] std::uint32_t after(std::uint32_t by) const { return (index + by) % size(); }
  [[nodiscard]] std::uint32_t before(std::uint32_t by) const {
    return (index + size() - by % size()) % size();
  }
};

/// The ranks of a group as a grid, seen from one of them.
struct Layout {
  /// From the innermost to the outermost (ranks of a host, hosts of a rack, racks), without those
  /// of one member; at least one, whose members are in the order of the hosts.
  std::vector<Dimension> dimensions;
  Dimension local;   ///< the ranks of this host
  Dimension hosts;   ///< of every host the rank with this one's local coordinate
  bool even = true;  ///< every host has as many ranks; if not, there is one dimension, all ranks
};

/// The layout of a group as `rank` sees it; all members find the same grid.
///
/// Args:
///   places: by rank in the group.
///   sizes: of the dimensions, the innermost first and ranks counted in this order; none: found
///     from the places. Throws Error(kConfig) where their product is not the number of ranks.
Layout make_layout(std::span<const Place> places, std::uint32_t rank,
                   std::span<const std::uint32_t> sizes = {});

}  // namespace slipstream
