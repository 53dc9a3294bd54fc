#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "base/memory.h"
#include "transport/shm/ring.h"

namespace slipstream {

/// The sizes of the memory between two ranks. They must be equal on both sides, or the ranks do not
/// connect.
struct ChannelGeometry {
  std::uint32_t segment_bytes = 0;
  std::uint32_t num_slots = 0;
  std::uint32_t eager_bytes = 0;
  std::uint32_t num_control_slots = 0;

  bool operator==(const ChannelGeometry&) const = default;
};

/// "4 slots of 131072 bytes and 64 control slots of 8192 bytes"
std::string describe(const ChannelGeometry& geometry);

/// The memory that two ranks share: a control ring and a bulk ring in each direction.
///
///   header (one page) | to the maker: states, control slots, bulk slots | to the other: the same
///
/// Both sides compute the layout from their own options; the memory contains no pointers or
/// offsets. Slots are adjacent, so that the slots in use stay in cache.
class Channel {
 public:
  static constexpr std::size_t kControl = 0;
  static constexpr std::size_t kBulk = 1;
  using Rings = std::array<Ring, 2>;

  /// Creates the memory. `memory` becomes its descriptor, which must be sent to the other rank.
  static Channel make(const ChannelGeometry& geometry, Descriptor& memory);
  /// Maps the memory that the other rank created. Throws Error(kPeer) if its size or header does
  /// not match `geometry`.
  static Channel open(const ChannelGeometry& geometry, const Descriptor& memory);

  [[nodiscard]] const Rings& outgoing() const noexcept { return outgoing_; }
  [[nodiscard]] const Rings& incoming() const noexcept { return incoming_; }

 private:
  Channel(const ChannelGeometry& geometry, const Descriptor& memory, bool maker);

  SharedMapping mapping_;
  Rings outgoing_;
  Rings incoming_;
};

}  // namespace slipstream
