#include "test/stream_blocks.h"

#include <algorithm>
#include <bit>

#include "slipstream/error.h"

namespace slipstream::test {
namespace {

constexpr std::size_t kLeastBytes = 512, kScribbleBytes = 256 << 10;
constexpr std::byte kScribble{0xee};

std::size_t size_class(std::size_t num_bytes) {
  return std::bit_ceil(std::max(num_bytes, kLeastBytes));
}

}  // namespace

StreamBlocks::StreamBlocks(Device& device, std::size_t num_streams, std::size_t num_pinned)
    : device_(device), pinned_(device, num_pinned + kScribbleBytes), free_(num_streams) {
  for (std::size_t i = 0; i < num_streams; ++i) streams_.emplace_back(device, device.make_stream());
  std::ranges::fill(pinned_.bytes().first(kScribbleBytes), kScribble);
  num_pinned_used_ = kScribbleBytes;
}

StreamBlock StreamBlocks::take(std::size_t stream, std::size_t num_bytes) {
  const std::size_t size = size_class(num_bytes);
  const auto found = free_[stream].find(size);
  if (found == free_[stream].end()) return {device_.allocate(size), num_bytes};
  const StreamBlock block{found->second, num_bytes};
  free_[stream].erase(found);
  return block;
}

void StreamBlocks::give_back(std::size_t stream, const StreamBlock& block, bool scribbles) {
  free_[stream].emplace(size_class(block.num_bytes), block.address);
  const std::size_t num_bytes = std::min(block.num_bytes, kScribbleBytes);
  if (!scribbles || num_bytes == 0) return;
  device_.copy_to_device(streams_[stream].get(), block.address, pinned_.bytes().data(), num_bytes);
}

std::byte* StreamBlocks::pin(std::size_t num_bytes) {
  SLIPSTREAM_ASSERT(num_pinned_used_ + num_bytes <= pinned_.bytes().size(), num_bytes, " bytes");
  std::byte* const place = pinned_.bytes().data() + num_pinned_used_;
  num_pinned_used_ += num_bytes;
  return place;
}

void StreamBlocks::upload(std::size_t stream, DeviceAddress target,
                          std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::byte* const place = pin(bytes.size());
  std::ranges::copy(bytes, place);
  device_.copy_to_device(streams_[stream].get(), target, place, bytes.size());
}

std::byte* StreamBlocks::download(std::size_t stream, DeviceAddress source, std::size_t num_bytes) {
  std::byte* const place = pin(num_bytes);
  if (num_bytes > 0) {
    device_.copy_to_host(streams_[stream].get(), place, source, num_bytes);
  }
  return place;
}

EventHandle StreamBlocks::mark(std::size_t stream) {
  marks_.emplace_back(device_, device_.make_event());
  device_.record(streams_[stream].get(), marks_.back().get());
  return marks_.back().get();
}

void StreamBlocks::synchronize() {
  for (const OwnedStream& stream : streams_) device_.synchronize(stream.get());
}

}  // namespace slipstream::test
