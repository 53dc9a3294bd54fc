#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/frame.h"

namespace slipstream {

/// The positions of a ring, in shared memory. Each has two cache lines, because the prefetcher of
/// common CPUs fetches lines in pairs. Positions only grow; slot = position modulo num_slots.
struct RingState {
  static constexpr std::size_t kApart = 128;
  alignas(kApart) std::atomic<std::uint64_t> produced{0};
  alignas(kApart) std::atomic<std::uint64_t> consumed{0};
  alignas(kApart) std::atomic<std::uint32_t> producer_waits{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// One ring in one process: the positions, and slots with a Frame followed by its payload.
struct Ring {
  RingState* state = nullptr;
  std::byte* slots = nullptr;
  std::uint32_t num_slots = 0;
  std::uint32_t slot_bytes = 0;      ///< bytes from one slot to the next; a multiple of 64
  std::uint32_t capacity_bytes = 0;  ///< payload bytes that fit a slot
};

// A ring has one producer and one consumer, which may be in different processes. Each owns one
// position and keeps a copy of the other's, which it reads again only if the copy says "full" or
// "empty". While both are busy, hardly any cache line moves except those of the slots.
//
// A producer that finds the ring full sets producer_waits and looks once more. A consumer that
// frees slots publishes them and then checks producer_waits. A full fence between the two steps on
// both sides ensures that at least one of them sees the other. Only the producer clears
// producer_waits, once it has seen room: a consumer that cleared it could remove a newer request.
//
// Every value read from shared memory is checked before it is used, because the other process may
// be broken. The first impossible value is recorded in fault(), for good.

/// The sending end of a ring.
class RingProducer {
 public:
  explicit RingProducer(const Ring& ring) : ring_(ring) {}

  /// Whether push() would accept a frame now. If not, the consumer is asked to ring when there is
  /// room.
  [[nodiscard]] bool ready();
  /// Copies frame and payload into a slot and publishes it. Returns false if there is no room.
  bool push(const Frame& frame, std::span<const std::byte> payload);
  [[nodiscard]] std::uint32_t capacity_bytes() const noexcept { return ring_.capacity_bytes; }
  /// A description of the consumer's impossible action; empty if there was none.
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  bool has_room();
  void set_waiting(bool waiting) noexcept;

  Ring ring_;
  std::uint64_t produced_ = 0;
  std::uint64_t consumed_ = 0;  // last value seen
  std::uint32_t slot_ = 0;      // produced_ modulo num_slots
  bool waiting_ = false;        // our value of producer_waits
  std::string fault_;
};

/// The receiving end of a ring. Call front(), then next() and front() any number of times, then
/// free().
class RingConsumer {
 public:
  struct Item {
    Frame frame;
    std::span<const std::byte> payload;
  };

  explicit RingConsumer(const Ring& ring) : ring_(ring) {}

  /// The oldest frame that was not passed, with its payload in the slot. Returns false if there is
  /// none.
  bool front(Item& item);
  /// Passes the oldest frame. The producer cannot reuse its slot yet.
  void next() noexcept;
  /// Returns the slots of all passed frames to the producer. The result is true if the producer is
  /// waiting and must be rung.
  [[nodiscard]] bool free() noexcept;
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  bool refresh();

  Ring ring_;
  std::uint64_t produced_ = 0;  // last value seen
  std::uint64_t consumed_ = 0;
  std::uint32_t slot_ = 0;  // consumed_ modulo num_slots
  std::string fault_;
};

}  // namespace slipstream
