#include "device/staging.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

/// Chunks are multiples of it wide, which is a multiple of every element and of every codec's
/// block.
constexpr std::size_t kWidthBytes = 4096;

/// Commands that a stream of a GPU holds, less a reserve; further calls block in the driver.
constexpr std::uint64_t kQueueDepth = 960;

void sleep_a_little() { std::this_thread::sleep_for(20us); }

StagingOptions checked(StagingOptions options) {
  const RingShape& ring = options.ring;
  if (!options.allow_small_slots &&
      (ring.slot_bytes < kMinSlotBytes || ring.slot_bytes > kMaxSlotBytes)) {
    fail(ErrorKind::kUsage, "staging cannot use slots of ", ring.slot_bytes,
         " bytes: a slot must have ", kMinSlotBytes, " to ", kMaxSlotBytes, " bytes");
  }
  if (options.max_chunks_ahead <= ring.num_slots) {
    fail(ErrorKind::kUsage, "staging cannot run ", options.max_chunks_ahead, " chunks ahead with ",
         ring.num_slots, " slots: max_chunks_ahead must exceed the number of slots");
  }
  if (!options.while_full) options.while_full = sleep_a_little;
  return options;
}

}  // namespace

Staging::Staging(Device& device, StagingOptions options)
    : device_(device),
      options_(checked(std::move(options))),
      memory_(device, GatedRing::bytes_for(options_.ring)),
      ring_(memory_.bytes(), options_.ring),
      to_host_(device, device.make_stream()),
      to_device_(device, device.make_stream()),
      submitted_(device, device.make_event()) {
  events_.reserve(options_.max_chunks_ahead);
  for (std::uint32_t i = 0; i < options_.max_chunks_ahead; ++i) {
    events_.emplace_back(device, device.make_event());
  }
}

void Staging::finish() noexcept {
  ring_.open();
  for (const OwnedStream* stream : {&to_host_, &to_device_}) {
    try {
      device_.synchronize(stream->get());
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a failed device executes nothing
    }
  }
}

std::size_t Transfer::width_of(std::size_t row, std::uint64_t index) const noexcept {
  const std::size_t begin = std::min(index * width, rows[row].num_bytes);
  return std::min(width, rows[row].num_bytes - begin);
}

std::size_t Transfer::offset_of(std::size_t row, std::uint64_t index) const noexcept {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < row; ++i) offset += width_of(i, index);
  return offset;
}

Transfer Staging::plan(std::vector<StagedRow> rows) const {
  const std::size_t slot = ring_.shape().slot_bytes;
  const std::size_t width =
      slot / std::max<std::size_t>(1, rows.size()) / kWidthBytes * kWidthBytes;
  if (width == 0) {
    fail(ErrorKind::kUsage, "a slot of ", slot, " bytes cannot hold blocks of ", rows.size(),
         " ranks; it has room for ", slot / kWidthBytes);
  }
  std::size_t longest = 0;
  for (const StagedRow& row : rows) longest = std::max(longest, row.num_bytes);
  const auto num_chunks = static_cast<std::uint32_t>((longest + width - 1) / width);
  return {num_to_host_, num_chunks, sequence_of(num_to_host_), width, std::move(rows)};
}

void Staging::submit(const Transfer& transfer, StreamHandle current) {
  SLIPSTREAM_ASSERT(transfer.first == num_to_host_, "chunk ", transfer.first, ", next is ",
                    num_to_host_);
  refuse_if_open();
  if (transfer.num_chunks == 0) return;
  try {
    device_.record(current, submitted_.get());
    device_.wait_event(to_host_.get(), submitted_.get());
    device_.wait_event(to_device_.get(), submitted_.get());  // also if the ring is open
    enqueue_all(transfer);
  } catch (...) {
    finish();  // some chunks are not copied back, so the sequence is broken
    throw;
  }
}

void Staging::enqueue_all(const Transfer& transfer) {
  const std::uint64_t num_chunks = transfer.num_chunks;
  const std::uint64_t num_slots = ring_.shape().num_slots;
  // A chunk takes a command for each row, and three more.
  const std::uint64_t fitting = kQueueDepth / (transfer.rows.size() + 3);
  const std::uint64_t max_chunks =
      std::max(num_slots + 1, std::min<std::uint64_t>(options_.max_chunks_ahead, fitting));
  // Fill the ring before the first wait: in a hardware queue that both streams share, copies behind
  // a wait would start late.
  for (std::uint64_t i = 0; i < num_chunks; ++i) {
    if (i >= num_slots) enqueue_to_device(transfer, i - num_slots);
    make_room(max_chunks);
    enqueue_to_host(transfer, i);
  }
  for (std::uint64_t i = num_chunks - std::min(num_chunks, num_slots); i < num_chunks; ++i) {
    enqueue_to_device(transfer, i);
  }
}

void Staging::enqueue_to_host(const Transfer& transfer, std::uint64_t index) {
  const std::uint32_t num_slots = ring_.shape().num_slots;
  const std::uint64_t number = transfer.first + index;
  const std::uint32_t sequence = sequence_of(number);
  if (number >= num_done_ + num_slots) {
    device_.wait_event(to_host_.get(), event_of(number - num_slots));
  }
  std::byte* slot = ring_.slot(sequence).data();
  for (std::size_t row = 0; row < transfer.rows.size(); ++row) {
    const std::size_t width = transfer.width_of(row, index);
    const DeviceAddress source = transfer.rows[row].source;
    if (source != 0 && width > 0) {
      device_.copy_to_host(to_host_.get(), slot, source + index * transfer.width, width);
    }
    slot += width;
  }
  device_.write_word(to_host_.get(), memory_.address_of(&ring_.gate(sequence).in), sequence);
  num_to_host_ = number + 1;
}

void Staging::enqueue_to_device(const Transfer& transfer, std::uint64_t index) {
  const std::uint64_t number = transfer.first + index;
  const std::uint32_t sequence = sequence_of(number);
  device_.wait_word(to_device_.get(), memory_.address_of(&ring_.gate(sequence).out), sequence);
  const std::byte* slot = ring_.slot(sequence).data();
  for (std::size_t row = 0; row < transfer.rows.size(); ++row) {
    const std::size_t width = transfer.width_of(row, index);
    const DeviceAddress target = transfer.rows[row].target;
    if (target != 0 && width > 0) {
      device_.copy_to_device(to_device_.get(), target + index * transfer.width, slot, width);
    }
    slot += width;
  }
  device_.record(to_device_.get(), event_of(number));
  num_to_device_ = number + 1;
}

void Staging::make_room(std::uint64_t max_chunks) {
  while (num_to_host_ - num_done_ >= max_chunks) {
    find_done();
    if (num_to_host_ - num_done_ >= max_chunks) options_.while_full();
  }
  refuse_if_open();  // after the loop: chunks that pass an open gate are done too early
}

void Staging::refuse_if_open() const {
  if (!ring_.is_open()) return;
  fail(ErrorKind::kAborted,
       "a tensor cannot be staged, because an earlier operation failed; create a new group");
}

void Staging::find_done() {
  // Chunks are done in order, so a binary search finds the first one that is not.
  std::uint64_t end = num_to_device_;
  while (num_done_ < end) {
    const std::uint64_t middle = num_done_ + (end - num_done_) / 2;
    if (device_.is_done(event_of(middle))) {
      num_done_ = middle + 1;
    } else {
      end = middle;
    }
  }
}

bool Staging::is_chunk_done(std::uint64_t number) {
  if (number >= num_to_device_) return false;  // the event belongs to an earlier chunk
  if (number >= num_done_ && device_.is_done(event_of(number))) num_done_ = number + 1;
  return number < num_done_;
}

void Staging::wait(StreamHandle stream, const Transfer& transfer) {
  if (transfer.num_chunks == 0) return;
  const std::uint64_t last = transfer.first + transfer.num_chunks - 1;
  SLIPSTREAM_ASSERT(last < num_to_device_, "chunk ", last, " was not submitted, next is ",
                    num_to_host_);
  if (last >= num_done_) device_.wait_event(stream, event_of(last));
}

bool Staging::is_done(const Transfer& transfer) {
  return transfer.num_chunks == 0 || is_chunk_done(transfer.first + transfer.num_chunks - 1);
}

}  // namespace slipstream
