#include "transport/tcp/frame_writer.h"

#include <array>

#include "base/overlap.h"
#include "slipstream/error.h"

namespace slipstream {

bool FrameWriter::send(const Frame& frame, std::span<const std::byte> payload) {
  SLIPSTREAM_ASSERT(frame.length == payload.size(), frame.length, " and ", payload.size());
  if (!ready()) return false;
  frame_ = frame;
  payload_ = payload;
  written_ = 0;
  written_ = write();
  holding_ = written_ > 0 && written_ < held_bytes();
  blocked_ = written_ < held_bytes() || channel_.holds_bytes();
  return written_ > 0;
}

bool FrameWriter::resume() {
  if (!blocked_ || failed()) return false;
  channel_.flush();
  if (holding_) {
    const std::size_t wrote = write();
    written_ += wrote;
    if (wrote == 0 || written_ < held_bytes()) return false;
    holding_ = false;
    owned_ = {};
  }
  blocked_ = channel_.holds_bytes();
  return !blocked_;
}

void FrameWriter::forget(std::span<const std::byte> memory) {
  if (!holding_ || !overlap(payload_, memory)) return;
  owned_.assign(payload_.begin(), payload_.end());
  payload_ = owned_;
}

std::size_t FrameWriter::write() {
  const auto header = std::as_bytes(std::span(&frame_, 1));
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (!bytes.empty()) parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  if (written_ < header.size()) add(header.subspan(written_));
  add(written_ < header.size() ? payload_ : payload_.subspan(written_ - header.size()));
  return channel_.send(std::span(parts).first(count));
}

}  // namespace slipstream
