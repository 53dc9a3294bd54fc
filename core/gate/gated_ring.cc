#include "gate/gated_ring.h"

#include <bit>
#include <cstring>
#include <new>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::size_t kPageBytes = 4096;
/// The distance by which open() moves a gate: past every chunk that may still come, and less than
/// 2^31.
constexpr std::uint32_t kOpenDistance = 1U << 30;

std::size_t gate_bytes(const RingShape& shape) {
  const std::size_t bytes = shape.num_slots * sizeof(Gate);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

std::size_t GatedRing::bytes_for(const RingShape& shape) {
  if (!std::has_single_bit(shape.num_slots)) {
    fail(ErrorKind::kUsage, "a ring cannot have ", shape.num_slots,
         " slots: their number must be a power of two");
  }
  if (shape.slot_bytes == 0 || shape.slot_bytes % kPageBytes != 0) {
    fail(ErrorKind::kUsage, "a slot cannot have ", shape.slot_bytes,
         " bytes; allowed: multiples of ", kPageBytes, " bytes");
  }
  return gate_bytes(shape) + shape.num_slots * shape.slot_bytes;
}

GatedRing::GatedRing(std::span<std::byte> memory, const RingShape& shape)
    : shape_(shape),
      gates_(reinterpret_cast<Gate*>(memory.data())),
      slots_(memory.data() + gate_bytes(shape)) {
  SLIPSTREAM_ASSERT(memory.size() >= bytes_for(shape), memory.size(), " bytes of memory");
  for (std::uint32_t i = 0; i < shape.num_slots; ++i) {
    Gate* made = new (gates_ + i) Gate;
    made->in.value.store(shape.first_sequence - 1, std::memory_order_relaxed);
    made->out.value.store(shape.first_sequence - 1, std::memory_order_release);
  }
}

void GatedRing::release(std::uint32_t sequence) noexcept {
  std::atomic<std::uint32_t>& out = gate(sequence).out.value;
  std::uint32_t value = out.load(std::memory_order_relaxed);
  // A gate that open() has moved further must stay there.
  while (!reached(value, sequence)) {
    if (out.compare_exchange_weak(value, sequence, std::memory_order_release,
                                  std::memory_order_relaxed)) {
      return;
    }
  }
}

void GatedRing::release_nan(std::uint32_t sequence, std::size_t num_bytes) noexcept {
  std::memset(slot(sequence).data(), 0xff, num_bytes);
  release(sequence);
}

void GatedRing::open() noexcept {
  if (open_.exchange(true, std::memory_order_acq_rel)) return;
  for (std::uint32_t i = 0; i < shape_.num_slots; ++i) {
    gates_[i].out.value.fetch_add(kOpenDistance, std::memory_order_acq_rel);
  }
}

}  // namespace slipstream
