#include "transport/tcp/frame_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/overlap.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {
constexpr std::size_t kPayloadAlignment = 16;
}  // namespace

FrameReader::FrameReader(const Source& source) : source_(source) {
  SLIPSTREAM_ASSERT(source.read_ahead_bytes >= sizeof(Frame), source.read_ahead_bytes);
  read_ahead_.reserve(source.read_ahead_bytes);
}

FrameReader::Progress FrameReader::read(ByteChannel& channel, bool until_end, Sink& sink) {
  for (std::size_t taken = 0; taken < kBytesPerRead;) {
    const ByteChannel::Received received = receive(channel);
    if (received.bytes > 0) account(received.bytes, sink);
    if (!reason_.empty()) return Progress::kEnded;
    if (received.bytes == 0 || (received.drained && !until_end)) return Progress::kDrained;
    taken += received.bytes;
  }
  return Progress::kMore;
}

/// Reads once. If nothing more will follow, reason_ is set.
ByteChannel::Received FrameReader::receive(ByteChannel& channel) {
  const std::span<std::byte> payload = rest();
  const std::array<iovec, 2> parts{
      {{payload.data(), payload.size()}, {read_ahead_.data() + end_, read_ahead_.size() - end_}}};
  const auto received = channel.receive(std::span(parts).subspan(payload.empty() ? 1 : 0));
  if (received.bytes > 0) return received;
  if (channel.ended()) {
    reason_ = in_payload_ || staged() > 0 ? "was closed by the peer in the middle of a frame"
                                          : "was closed by the peer";
  } else if (!channel.receive_failure().empty()) {
    reason_ = concat("broke: ", channel.receive_failure());
  }
  return received;
}

/// Distributes the bytes that receive() has read: they filled first the payload, then the
/// read-ahead buffer.
void FrameReader::account(std::size_t received, Sink& sink) {
  const std::size_t of_payload = std::min(received, rest().size());
  end_ += received - of_payload;
  if (in_payload_) {
    got_ += of_payload;
    if (got_ < frame_.length) return;
    deliver({target_, frame_.length}, sink);
  }
  parse(sink);
}

/// Delivers every complete frame in the read-ahead buffer. The remaining bytes, less than a header,
/// are moved to its beginning.
void FrameReader::parse(Sink& sink) {
  while (reason_.empty() && !in_payload_ && staged() >= sizeof(Frame)) {
    std::memcpy(&frame_, read_ahead_.data() + begin_, sizeof frame_);
    begin_ += sizeof frame_;
    if (!sound(frame_)) return;
    begin_payload(sink);
  }
  if (begin_ > 0) std::memmove(read_ahead_.data(), read_ahead_.data() + begin_, staged());
  end_ = staged();
  begin_ = 0;
}

void FrameReader::begin_payload(Sink& sink) {
  if (frame_.length == 0) return deliver({}, sink);
  target_ = sink.place(source_.peer, frame_);
  std::byte* const ahead = read_ahead_.data() + begin_;
  got_ = std::min<std::size_t>(staged(), frame_.length);
  begin_ += got_;
  if (target_ == nullptr) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(ahead) % kPayloadAlignment == 0;
    if (got_ == frame_.length && aligned) return deliver({ahead, got_}, sink);
    target_ = own_payload_memory();
  }
  std::memcpy(target_, ahead, got_);
  in_payload_ = got_ < frame_.length;
  if (!in_payload_) deliver({target_, got_}, sink);
}

void FrameReader::deliver(std::span<const std::byte> payload, Sink& sink) {
  in_payload_ = false;
  if (std::exchange(discarding_, false)) payload = {};
  sink.arrived(source_.peer, source_.stream, frame_, payload);
}

void FrameReader::forget(std::span<const std::byte> memory) {
  if (!in_payload_ || !overlap({target_, frame_.length}, memory)) return;
  discarding_ = true;
  target_ = own_payload_memory();
}

bool FrameReader::sound(const Frame& frame) {
  const auto kind = static_cast<std::uint8_t>(frame.kind);
  if (frame.length > source_.max_payload_bytes) {
    reason_ = concat("sent a frame of ", frame.length, " bytes; allowed: at most ",
                     source_.max_payload_bytes, "; the stream is closed");
  } else if (kind < static_cast<std::uint8_t>(FrameKind::kSegment) ||
             kind > static_cast<std::uint8_t>(kLastFrameKind)) {
    reason_ = concat("sent a frame of kind ", static_cast<unsigned>(kind), "; allowed: 1 to ",
                     static_cast<unsigned>(kLastFrameKind), "; the stream is closed");
  }
  return reason_.empty();
}

std::byte* FrameReader::own_payload_memory() {
  payload_.reserve(source_.max_payload_bytes);
  return payload_.data();
}

}  // namespace slipstream
