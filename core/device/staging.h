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
  /// Most chunks that are enqueued and not yet back on the device; more than the ring has slots. A
  /// chunk takes at most four calls in one stream, and a GPU can queue 1,020 calls per stream.
  std::uint32_t max_chunks_ahead = 240;
  /// Called repeatedly while submit() waits for chunks to come back. It may drive the engine. By
  /// default it sleeps.
  std::function<void()> while_full{};
  bool allow_small_slots = false;  ///< slots below kMinSlotBytes, for tests
};

/// The chunks of one tensor, which the engine finds in the ring.
struct Transfer {
  std::uint64_t first = 0;  ///< number of the first chunk, counted from 0 without wrapping
  std::uint32_t num_chunks = 0;
  std::uint32_t sequence = 0;  ///< sequence number of the first chunk in the ring
  std::size_t num_bytes = 0;
};

/// Moves tensors of a device to host memory, where the engine works on them, and back.
///
/// submit() enqueues everything, chunk by chunk: copy to the host, write the gate's `in`, wait for
/// the gate's `out`, copy to the device. While the engine works on one chunk, others are copied in
/// both directions. Engine and device interact only through the ring's memory. Only the stream to
/// the device waits for words, and each wait is enqueued after the copy that allows the engine to
/// end it. A slot is filled again after the event of its last copy to the device. Streams, events
/// and memory are created at the beginning and never later, because some of these calls block while
/// a stream waits for a word.
///
/// One thread at a time may call it, but no thread of the engine.
class Staging {
 public:
  /// `device` must outlive the staging.
  Staging(Device& device, StagingOptions options);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  /// Opens the ring, and blocks until the device has finished with it.
  ~Staging();

  /// The ring that the engine uses. A thread that finds that an operation has failed opens it.
  [[nodiscard]] GatedRing& ring() noexcept { return ring_; }

  /// The transfer that the next submit() of `num_bytes` will create. The engine must know it before
  /// submission, because submit() may have to wait for its first chunks.
  [[nodiscard]] Transfer plan(std::size_t num_bytes) const;
  /// Enqueues the copies of the memory at `source` to the host and back to `target`, after
  /// everything that `current` has enqueued so far. Blocks while max_chunks_ahead chunks are not
  /// back. Both memories must stay valid until the transfer is done.
  ///
  /// Throws Error(kAborted) if the ring is open or is opened meanwhile, and the errors of the
  /// device. After an error the ring is open, and part of the transfer may be enqueued.
  void submit(const Transfer& transfer, StreamHandle current, DeviceAddress source,
              DeviceAddress target);
  /// Makes a stream wait until the transfer, which must have been submitted, is back on the device.
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
  /// Events by number % size of a chunk: the chunk is back.
  std::vector<OwnedEvent> events_;
  // Chunks by number: [0, num_back_) are known to be back, [.., num_sent_) were enqueued to the
  // host, and [.., num_returned_) also to the device.
  std::uint64_t num_back_ = 0;
  std::uint64_t num_returned_ = 0;
  std::uint64_t num_sent_ = 0;
};

}  // namespace slipstream
