#include "transport/shm/channel.h"

#include <new>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kMagic = 0x314d4853'50494c53;  // "SLIPSHM1"

struct ChannelHeader {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kProtocolVersion;
  ChannelGeometry geometry;
};
static_assert(sizeof(ChannelHeader) <= kPageBytes);

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::uint32_t slot_bytes(std::uint32_t capacity_bytes) {
  return static_cast<std::uint32_t>(sizeof(Frame) + round_up(capacity_bytes, 64));
}

std::size_t region_bytes(std::uint32_t num_slots, std::uint32_t capacity_bytes) {
  return round_up(std::size_t{num_slots} * slot_bytes(capacity_bytes), kPageBytes);
}

// The size of one direction: a page of states, the control slots, the bulk slots.
std::size_t direction_bytes(const ChannelGeometry& shape) {
  return kPageBytes + region_bytes(shape.num_control_slots, shape.eager_bytes) +
         region_bytes(shape.num_slots, shape.segment_bytes);
}

std::size_t total_bytes(const ChannelGeometry& shape) {
  return kPageBytes + 2 * direction_bytes(shape);
}

Channel::Rings rings_at(std::byte* memory, const ChannelGeometry& shape) {
  static_assert(2 * sizeof(RingState) <= kPageBytes);
  auto* const states = reinterpret_cast<RingState*>(memory);
  std::byte* const control_slots = memory + kPageBytes;
  std::byte* const bulk_slots =
      control_slots + region_bytes(shape.num_control_slots, shape.eager_bytes);
  return {{{states, control_slots, shape.num_control_slots, slot_bytes(shape.eager_bytes),
            shape.eager_bytes},
           {states + 1, bulk_slots, shape.num_slots, slot_bytes(shape.segment_bytes),
            shape.segment_bytes}}};
}

}  // namespace

std::string describe(const ChannelGeometry& geometry) {
  return concat(geometry.num_slots, " slots of ", geometry.segment_bytes, " bytes and ",
                geometry.num_control_slots, " control slots of ", geometry.eager_bytes, " bytes");
}

Channel Channel::make(const ChannelGeometry& geometry, Descriptor& memory) {
  memory = make_memory_fd("slipstream-channel", total_bytes(geometry));
  return {geometry, memory, true};
}

Channel Channel::open(const ChannelGeometry& geometry, const Descriptor& memory) {
  return {geometry, memory, false};
}

Channel::Channel(const ChannelGeometry& geometry, const Descriptor& memory, bool maker)
    : mapping_(memory.get(), total_bytes(geometry)) {
  std::byte* const header = mapping_.data();
  std::byte* const to_maker = header + kPageBytes;
  std::byte* const from_maker = to_maker + direction_bytes(geometry);
  incoming_ = rings_at(maker ? to_maker : from_maker, geometry);
  outgoing_ = rings_at(maker ? from_maker : to_maker, geometry);
  if (maker) {
    new (header) ChannelHeader{.geometry = geometry};
    for (const Rings& rings : {incoming_, outgoing_}) {
      for (const Ring& ring : rings) new (ring.state) RingState;
    }
    return;
  }
  const ChannelHeader found = *reinterpret_cast<const ChannelHeader*>(header);
  if (found.magic != kMagic || found.version != kProtocolVersion || found.geometry != geometry) {
    fail(ErrorKind::kPeer, "made shared memory of version ", found.version, " with ",
         describe(found.geometry), "; this rank expects version ", kProtocolVersion, " with ",
         describe(geometry));
  }
}

}  // namespace slipstream
