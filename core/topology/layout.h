#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

/// The place where a rank runs. Ranks with equal hosts run on one host, and hosts with equal racks
/// are in one rack.
struct Place {
  std::string host, rack;
};

/// Identifies this host: processes with equal texts can share memory.
std::string identify_host();

/// One dimension as a rank sees it: the ranks that differ from it only in this coordinate.
struct Dimension {
  std::vector<std::uint32_t> members;  ///< ranks in the group, by coordinate, including this rank
  std::uint32_t index = 0;             ///< this rank's coordinate

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  [[nodiscard]] std::uint32_t after(std::uint32_t by) const { return (index + by) % size(); }
  [[nodiscard]] std::uint32_t before(std::uint32_t by) const {
    return (index + size() - by % size()) % size();
  }
};

/// The ranks of a group as a grid, as one of them sees it.
struct Layout {
  /// From the innermost to the outermost dimension (ranks of a host, hosts of a rack, racks),
  /// without dimensions of one member. There is at least one dimension, whose members are in the
  /// order of the hosts.
  std::vector<Dimension> dimensions;
  Dimension local;  ///< the ranks of this host
  Dimension hosts;  ///< of every host, the rank that has this rank's local coordinate
  /// Whether all hosts have the same number of ranks; if not, all ranks form one dimension.
  bool even = true;
};

/// The layout of a group as `rank` sees it; all members compute the same grid.
///
/// Args:
///   places: places of the ranks, by rank in the group.
///   sizes: sizes of the dimensions, the innermost first, with ranks counted in this order; if
///   empty,
///     they are derived from the places.
///
/// Throws Error(kConfig) if the product of the sizes is not the number of ranks.
Layout make_layout(std::span<const Place> places, std::uint32_t rank,
                   std::span<const std::uint32_t> sizes = {});

}  // namespace slipstream
