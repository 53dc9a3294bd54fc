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

/// A ring of slots in host memory. This is all that the engine sees of a device.
///
/// Chunks have sequence numbers, which may wrap, and chunk `sequence` uses slot
/// `sequence % num_slots`. The device copies a chunk into its slot and writes the flag `in`. The
/// engine works on the slot and releases it, which writes the flag `out`. The device waits for
/// `out` and copies the slot back.
///
/// The functions touch memory only and never block. Several threads may use the ring if each chunk
/// is handled by one of them.
class GatedRing {
 public:
  /// Makes a ring in `memory`, which must have bytes_for(shape) bytes and start at a page. All
  /// gates are closed.
  GatedRing(std::span<std::byte> memory, const RingShape& shape);
  GatedRing(const GatedRing&) = delete;
  GatedRing& operator=(const GatedRing&) = delete;

  /// The memory that a ring needs. Throws Error(kUsage) if no ring can have this shape.
  static std::size_t bytes_for(const RingShape& shape);

  [[nodiscard]] const RingShape& shape() const noexcept { return shape_; }
  [[nodiscard]] Gate& gate(std::uint32_t sequence) const noexcept {
    return gates_[index_of(sequence)];
  }
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t sequence) const noexcept {
    return {slots_ + index_of(sequence) * shape_.slot_bytes, shape_.slot_bytes};
  }

  /// Whether the chunk is in its slot. The slot then belongs to the engine until release().
  [[nodiscard]] bool ready(std::uint32_t sequence) const noexcept {
    return reached(gate(sequence).in.value.load(std::memory_order_acquire), sequence);
  }
  /// Returns the slot to the device, which copies it to device memory.
  void release(std::uint32_t sequence) noexcept;
  /// Releases a chunk that is ready and whose operation has failed. The first `num_bytes` of the
  /// slot become 0xff, which is NaN in every floating-point type.
  void release_nan(std::uint32_t sequence, std::size_t num_bytes) noexcept;

  /// Opens all gates for good, so that the device waits for no chunk, now or later. Slots that were
  /// not released are copied back as they are, so the results are undefined and the caller must be
  /// told by an error. Any thread may call this, also repeatedly.
  void open() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

 private:
  [[nodiscard]] std::uint32_t index_of(std::uint32_t sequence) const noexcept {
    return sequence & (shape_.num_slots - 1);
  }

  RingShape shape_;
  Gate* gates_;
  std::byte* slots_;
  std::atomic<bool> open_{false};
};

}  // namespace slipstream
