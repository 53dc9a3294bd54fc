#include "transport/shm/ring.h"

#include <cstring>

#include "slipstream/error.h"

namespace slipstream {
namespace {

std::byte* slot_of(const Ring& ring, std::uint32_t slot) {
  return ring.slots + std::size_t{slot} * ring.slot_bytes;
}

std::uint32_t following(const Ring& ring, std::uint32_t slot) {
  return slot + 1 == ring.num_slots ? 0 : slot + 1;
}

}  // namespace

bool RingProducer::ready() {
  if (!has_room() && !waiting_) {
    set_waiting(true);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in free()
  }
  if (!has_room()) return false;
  if (waiting_) set_waiting(false);
  return true;
}

bool RingProducer::push(const Frame& frame, std::span<const std::byte> payload) {
  if (!ready()) return false;
  std::byte* const slot = slot_of(ring_, slot_);
  std::memcpy(slot, &frame, sizeof frame);
  if (!payload.empty()) std::memcpy(slot + sizeof frame, payload.data(), payload.size());
  slot_ = following(ring_, slot_);
  ring_.state->produced.store(++produced_, std::memory_order_release);
  return true;
}

bool RingProducer::has_room() {
  if (produced_ - consumed_ < ring_.num_slots) return true;
  const std::uint64_t consumed = ring_.state->consumed.load(std::memory_order_acquire);
  if (consumed - consumed_ <= produced_ - consumed_) {
    consumed_ = consumed;
  } else if (fault_.empty()) {
    fault_ = concat("it claims to have taken ", consumed,
                    " frames out of a ring; possible: ", consumed_, " to ", produced_);
  }
  return produced_ - consumed_ < ring_.num_slots;
}

void RingProducer::set_waiting(bool waiting) noexcept {
  waiting_ = waiting;
  ring_.state->producer_waits.store(waiting ? 1 : 0, std::memory_order_relaxed);
}

bool RingConsumer::front(Item& item) {
  if (consumed_ == produced_ && !refresh()) return false;
  const std::byte* const slot = slot_of(ring_, slot_);
  // The check uses our own copy, because the other process could change the slot meanwhile.
  std::memcpy(&item.frame, slot, sizeof item.frame);
  const auto kind = static_cast<unsigned>(item.frame.kind);
  const bool known = item.frame.kind >= FrameKind::kSegment && item.frame.kind <= kLastFrameKind;
  if (!known || item.frame.length > ring_.capacity_bytes) {
    fault_ = concat("it sent a frame of kind ", kind, " with ", item.frame.length,
                    " bytes; allowed: kinds 1 to ", static_cast<unsigned>(kLastFrameKind),
                    " with at most ", ring_.capacity_bytes, " bytes");
    produced_ = consumed_;  // other frames in the ring are ignored
    return false;
  }
  item.payload = {slot + sizeof item.frame, item.frame.length};
  return true;
}

void RingConsumer::next() noexcept {
  ++consumed_;
  slot_ = following(ring_, slot_);
}

bool RingConsumer::free() noexcept {
  ring_.state->consumed.store(consumed_, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in ready()
  return ring_.state->producer_waits.load(std::memory_order_relaxed) != 0;
}

bool RingConsumer::refresh() {
  if (!fault_.empty()) return false;
  const std::uint64_t produced = ring_.state->produced.load(std::memory_order_acquire);
  if (produced - consumed_ > ring_.num_slots) {
    fault_ = concat("it claims to have put ", produced, " frames into a ring of ", ring_.num_slots,
                    " slots, of which ", consumed_, " were taken out");
    return false;
  }
  produced_ = produced;
  return produced_ != consumed_;
}

}  // namespace slipstream
