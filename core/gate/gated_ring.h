#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gate/gate.h"

namespace slipstream {

struct RingShape {
  std::uint32_t num_slots = 8;  ///< a power of two, so that sequences may wrap
  std::size_t slot_bytes = 4 << 20;
  std::uint32_t first_sequence = 1;
};

/// A ring of slots in host memory, as the engine sees it. Chunks have sequence numbers that wrap,
/// and chunk `sequence` is in slot `sequence % num_slots`. The device fills a slot and writes the
/// gate's `in`. The engine works on the slot and releases it. The device, which waits for `out`,
/// copies the slot back. A ring only touches memory and never blocks. Several threads may use it if
/// each chunk is handled by one of them.
class GatedRing {
 public:
  /// Uses `memory`, which must have bytes_for(shape) bytes and begin at a page; closes all gates.
  GatedRing(std::span<std::byte> memory, const RingShape& shape);
  GatedRing(const GatedRing&) = delete;
  GatedRing& operator=(const GatedRing&) = delete;

  /// Throws Error(kUsage) unless a ring can have this shape.
  static std::size_t bytes_for(const RingShape& shape);

  [[nodiscard]] const RingShape& shape() const noexcept { return shape_; }
  [[nodiscard]] Gate& gate(std::uint32_t sequence) const noexcept {
    return gates_[sequence % shape_.num_slots];
  }
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t sequence) const noexcept {
    return {slots_ + sequence % shape_.num_slots * shape_.slot_bytes, shape_.slot_bytes};
  }

  /// Whether the chunk is in its slot. From then until release() the slot belongs to the engine.
  [[nodiscard]] bool ready(std::uint32_t sequence) const noexcept {
    return reached(gate(sequence).in.value.load(std::memory_order_acquire), sequence);
  }
  /// Returns the slot to the device, which copies it to the chunk's place.
  void release(std::uint32_t sequence) noexcept;
  /// For a chunk that is ready and whose operation has failed: fills the first `num_bytes` of the
  /// slot with bytes of 0xff, which are NaN in every floating-point type, and releases it.
  void spoil(std::uint32_t sequence, std::size_t num_bytes) noexcept;

  /// Opens all gates for good, so that the device never waits again. Slots that were not released
  /// are copied back too, so the tensors have no meaning any more, and the caller must raise an
  /// error. Any thread may call it, more than once.
  void open() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

 private:
  RingShape shape_;
  Gate* gates_;
  std::byte* slots_;
  std::atomic<bool> open_{false};
};

}  // namespace slipstream
