#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/frame.h"

namespace slipstream {

/// The positions of a ring, in shared memory. Two cache lines each, because the prefetcher of
/// common CPUs fetches lines in pairs. Positions only grow; slot = position modulo num_slots.
struct RingState {
  static constexpr std::size_t kApart = 128;
  alignas(kApart) std::atomic<std::uint64_t> produced{0};
  alignas(kApart) std::atomic<std::uint64_t> consumed{0};
  alignas(kApart) std::atomic<std::uint32_t> producer_waits{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// One ring as one process sees it: the positions, and slots of a Frame with its payload behind.
struct Ring {
  RingState* state = nullptr;
  std::byte* slots = nullptr;
  std::uint32_t num_slots = 0;
  std::uint32_t slot_bytes = 0;      ///< from one slot to the next, a multiple of 64
  std::uint32_t capacity_bytes = 0;  ///< of payload in a slot
};

// A ring has one producer and one consumer, which may be in different processes. Each owns one
// position and keeps a copy of the other's, which it reads again only when the copy says "full" or
// "empty": while both are busy, hardly a cache line travels but those of the slots.
//
// A producer that finds the ring full says so (producer_waits), then looks once more; a consumer
// that frees slots publishes that, then looks whether somebody waits. A full fence on both sides
// between the two steps lets at least one of them see the other. Only the producer takes its word
// back, once it has seen room: a consumer that did could wipe out a newer request.
//
// Whatever is read from shared memory is held against what is possible before it is used: the
// other process may be broken. What is not possible ends up in fault(), once and for good.

/// The sending end of a ring.
class RingProducer {
 public:
  explicit RingProducer(const Ring& ring) : ring_(ring) {}

  /// Whether push() would take a frame now; if not, the consumer is asked to say when it would.
  [[nodiscard]] bool ready();
  /// Copies frame and payload into a slot and publishes it; false when there is no room.
  bool push(const Frame& frame, std::span<const std::byte> payload);
  [[nodiscard]] std::uint32_t capacity_bytes() const noexcept { return ring_.capacity_bytes; }
  /// Empty, or what the consumer did that cannot be.
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  bool has_room();
  void set_waiting(bool waiting) noexcept;

  Ring ring_;
  std::uint64_t produced_ = 0;
  std::uint64_t consumed_ = 0;  // as last seen
  std::uint32_t slot_ = 0;      // produced_ modulo num_slots
  bool waiting_ = false;        // what producer_waits says
  std::string fault_;
};

/// The receiving end of a ring. front(), then as often as wanted next() and front(), then free().
class RingConsumer {
 public:
  struct Item {
    Frame frame;
    std::span<const std::byte> payload;
  };

  explicit RingConsumer(const Ring& ring) : ring_(ring) {}

  /// The oldest frame that has not been passed, its payload in the slot; false when there is none.
  bool front(Item& item);
  /// Passes the oldest frame. Its slot still is not the producer's.
  void next() noexcept;
  /// Gives the slots of all passed frames back. True when the producer waits and must be rung.
  [[nodiscard]] bool free() noexcept;
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  bool refresh();

  Ring ring_;
  std::uint64_t produced_ = 0;  // as last seen
  std::uint64_t consumed_ = 0;
  std::uint32_t slot_ = 0;  // consumed_ modulo num_slots
  std::string fault_;
};

}  // namespace slipstream
