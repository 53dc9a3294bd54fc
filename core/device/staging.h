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
  /// The largest number of chunks that are enqueued and not done. It must exceed the number of
  /// slots. Fewer run ahead if chunks have several rows, because a GPU stream holds 1,020 commands.
  std::uint32_t max_chunks_ahead = 240;
  /// submit() calls this repeatedly while it waits for chunks to be done. It may drive the engine.
  /// The default sleeps.
  std::function<void()> while_full{};
  bool allow_small_slots = false;  ///< allow slots below kMinSlotBytes, for tests
};

/// A part of an operation's memory that is contiguous on the device: a tensor, or a rank's block.
struct StagedRow {
  std::size_t num_bytes = 0;
  DeviceAddress source = 0;  ///< copied from here to the slot; 0: not copied
  DeviceAddress target = 0;  ///< copied here from the slot; 0: not copied
};

/// The chunks of one operation. Chunk `index` consists of the next `width` bytes of each row, or of
/// those that are left. The rows' parts follow one another in the slot without gaps.
struct Transfer {
  std::uint64_t first = 0;  ///< number of the first chunk; numbers start at 0 and do not wrap
  std::uint32_t num_chunks = 0;
  std::uint32_t sequence = 0;  ///< sequence number of the first chunk in the ring
  std::size_t width = 0;
  std::vector<StagedRow> rows{};

  /// The number of bytes of a row in a chunk.
  [[nodiscard]] std::size_t width_of(std::size_t row, std::uint64_t index) const noexcept;
  /// The offset of a row's part, or of the end, in a chunk's slot.
  [[nodiscard]] std::size_t offset_of(std::size_t row, std::uint64_t index) const noexcept;
};

/// Moves tensors from a device to host memory, where the engine works on them, and back.
///
/// submit() enqueues all commands of a tensor, chunk by chunk. One stream copies each chunk to its
/// slot and writes the gate's `in`. Another stream waits for the gate's `out` and copies the slot
/// back. So the engine works on one chunk while others are copied in both directions, and engine
/// and device communicate through the ring only.
///
/// Each wait for a word is enqueued after the copy that allows the engine to end it. An event after
/// the copy back allows the slot to be filled again. All streams, events and memory are made by the
/// constructor, because calls that make or free them may block while a stream waits for a word.
///
/// One thread at a time may call it, and never a thread of the engine.
class Staging {
 public:
  /// `device` must outlive the staging.
  Staging(Device& device, StagingOptions options);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  /// Calls finish().
  ~Staging() { finish(); }

  /// Opens the ring and blocks until the device has executed all commands. submit() then throws.
  void finish() noexcept;

  /// The engine's side. If the engine cannot finish its operations, it must open the ring.
  [[nodiscard]] GatedRing& ring() noexcept { return ring_; }

  /// The transfer for the next submit(). The engine must know the transfer before submit(), which
  /// may wait until the first chunks are done. Throws Error(kUsage) if there are too many rows for
  /// a slot.
  [[nodiscard]] Transfer plan(std::vector<StagedRow> rows) const;
  /// Enqueues the copies to the host and back. They start after all commands that `current` has
  /// now. Blocks while max_chunks_ahead chunks are not done. The device memory must exist until the
  /// transfer is done.
  ///
  /// Throws Error(kAborted) if the ring is open or is opened meanwhile, and the errors of the
  /// device. After an error the ring is open, and a part of the transfer may be enqueued.
  void submit(const Transfer& transfer, StreamHandle current);
  /// Makes a stream wait until a submitted transfer is done.
  void wait(StreamHandle stream, const Transfer& transfer);
  /// Whether the result is in device memory. A transfer whose submit() threw is never done.
  [[nodiscard]] bool is_done(const Transfer& transfer);

 private:
  void enqueue_all(const Transfer& transfer);
  void enqueue_to_host(const Transfer& transfer, std::uint64_t index);
  void enqueue_to_device(const Transfer& transfer, std::uint64_t index);
  void make_room(std::uint64_t max_chunks);
  void refuse_if_open() const;
  void find_done();
  [[nodiscard]] bool is_chunk_done(std::uint64_t number);
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
  std::vector<OwnedEvent> events_;   ///< chunk `number` is done: element number % size
  std::uint64_t num_to_host_ = 0;    ///< chunks whose copy to the host is enqueued
  std::uint64_t num_to_device_ = 0;  ///< chunks whose copy to the device is enqueued
  std::uint64_t num_done_ = 0;       ///< chunks that are known to be done
};

}  // namespace slipstream
