#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "base/memory.h"
#include "transport/shm/ring.h"

namespace slipstream {

/// The shape of the memory between two ranks; the same on both sides or they do not connect.
struct ChannelGeometry {
  std::uint32_t segment_bytes = 0;
  std::uint32_t num_slots = 0;
  std::uint32_t eager_bytes = 0;
  std::uint32_t num_control_slots = 0;

  bool operator==(const ChannelGeometry&) const = default;
};

/// "4 slots of 131072 bytes and 64 control slots of 8192 bytes"
std::string describe(const ChannelGeometry& geometry);

/// The shared memory of two ranks: in each direction a control ring and a bulk ring.
///
///   header (one page) | to the maker: states, control slots, bulk slots | to the other: the same
///
/// Both sides compute the layout from their own options; nothing in the memory is a pointer or an
/// offset. Slots lie side by side, so that what is in use stays in cache.
class Channel {
 public:
  static constexpr std::size_t kControl = 0;
  static constexpr std::size_t kBulk = 1;
  using Rings = std::array<Ring, 2>;

  /// Makes the memory; `memory` then holds its descriptor, to be sent to the other rank.
  static Channel make(const ChannelGeometry& geometry, Descriptor& memory);
  /// Maps what the other rank made. Throws Error(kPeer) when its size or header is not what
  /// `geometry` asks for.
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
