#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "device/device.h"
#include "device/owned.h"
#include "device/pinned_memory.h"
#include "gate/gated_ring.h"

namespace slipstream {

constexpr std::size_t kMinSlotBytes = 512 << 10, kMaxSlotBytes = 4 << 20;

struct StagingOptions {
  RingShape ring{};
  /// Chunks that are enqueued and not yet back on the device; more than the ring has slots. A chunk
  /// takes four calls in one stream at most, and a GPU holds 1,020 calls of a stream.
  std::uint32_t max_chunks_ahead = 240;
  /// Called again and again while submit() waits for chunks to come back. It may drive the engine.
  /// By default it sleeps.
  std::function<void()> while_full{};
  bool allow_small_slots = false;  ///< of less than kMinSlotBytes, for tests
};

/// The chunks of one tensor, which the engine finds in the ring.
struct Transfer {
  std::uint64_t first = 0;  ///< number of the first chunk, counted from 0 without wrapping
  std::uint32_t num_chunks = 0;
  std::uint32_t sequence = 0;  ///< that the ring has for the first chunk
  std::size_t num_bytes = 0;
};

/// Takes tensors of a device through host memory, where the engine works on them, and back.
///
/// All is enqueued by submit(), chunk by chunk: copy to the host, write the gate's `in`; wait for
/// the gate's `out`, copy to the device. While the engine has one chunk, others are copied both
/// ways. Engine and device meet in the ring's memory only. Only the stream to the device waits for
/// words, and each wait is enqueued after the copy that lets the engine end it. A slot is filled
/// again after the event of its last copy to the device. Streams, events and memory are made at the
/// beginning and none later, because some of these calls block while a word is waited for.
///
/// One thread at a time may call it, and it is no thread of the engine.
class Staging {
 public:
  /// `device` must outlive the staging.
  Staging(Device& device, StagingOptions options);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  /// Opens the ring and blocks until the device is done with it.
  ~Staging();

  /// For the engine. Whoever finds that an operation has failed opens it.
  [[nodiscard]] GatedRing& ring() noexcept { return ring_; }

  /// The transfer that the next submit() of `num_bytes` will be. The engine must know it before it
  /// is submitted, because submit() may have to wait for its first chunks.
  [[nodiscard]] Transfer plan(std::size_t num_bytes) const;
  /// Enqueues the way of the memory at `source` to the host and back to `target`, after all that
  /// `current` has enqueued so far. Blocks while max_chunks_ahead chunks are not back. Both
  /// memories must stay until the transfer is done.
  ///
  /// Throws Error(kAborted) if the ring is open or is opened meanwhile, and whatever the device
  /// throws. The ring is open then, and a part of the transfer may be enqueued.
  void submit(const Transfer& transfer, StreamHandle current, DeviceAddress source,
              DeviceAddress target);
  /// Lets a stream wait until the transfer, which was submitted, is back on the device.
  void wait(StreamHandle stream, const Transfer& transfer);
  /// Whether the transfer is back on the device; never if its submit() threw.
  [[nodiscard]] bool is_done(const Transfer& transfer);

 private:
  struct Chunk {
    std::uint64_t number;
    std::size_t offset;
    std::size_t num_bytes;
  };

  void enqueue_all(const Transfer& transfer, DeviceAddress source, DeviceAddress target);
  [[nodiscard]] Chunk chunk(const Transfer& transfer, std::uint64_t index) const;
  void enqueue_to_host(const Chunk& chunk, DeviceAddress source);
  void enqueue_to_device(const Chunk& chunk, DeviceAddress target);
  void make_room();
  void refuse_if_open() const;
  void look_what_is_back();
  [[nodiscard]] bool is_back(std::uint64_t number);
  [[nodiscard]] std::uint32_t sequence_of(std::uint64_t number) const noexcept {
    return ring_.shape().first_sequence + static_cast<std::uint32_t>(number);
  }
  [[nodiscard]] EventHandle event_of(std::uint64_t number) const noexcept {
    return events_[number % events_.size()].get();
  }

  Device& device_;
  StagingOptions options_;
  PinnedMemory memory_;
  GatedRing ring_;
  OwnedStream to_host_;
  OwnedStream to_device_;
  OwnedEvent submitted_;
  std::vector<OwnedEvent> events_;  ///< of chunk `number`, at number % size: it is back
  // Chunks by number: [0, num_back_) are known to be back, [.., num_sent_) were enqueued to the
  // host, [.., num_returned_) to the device, too.
  std::uint64_t num_back_ = 0;
  std::uint64_t num_returned_ = 0;
  std::uint64_t num_sent_ = 0;
};

}  // namespace slipstream
