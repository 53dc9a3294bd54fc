#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/tcp/byte_channel.h"
#include "transport/transport.h"

namespace slipstream {

/// Memory that begins at a cache line.
class AlignedBuffer {
 public:
  void reserve(std::size_t bytes) {
    if (bytes > size()) lines_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
  }
  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(lines_.data()); }
  [[nodiscard]] std::size_t size() const noexcept { return lines_.size() * sizeof(Line); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

/// The receiving half of a stream: it splits the received bytes into frames.
///
/// One call of the channel reads the rest of a payload directly into the memory from the engine,
/// and the following bytes into a small read-ahead buffer: the next header and often, on the
/// control stream, many complete frames. The part of a payload that is in the read-ahead buffer
/// must be copied, so the buffer is small if payloads are large.
class FrameReader {
 public:
  struct Source {
    std::uint32_t peer = 0;
    std::uint32_t stream = 0;
    std::uint32_t max_payload_bytes = kMaxSegmentBytes;
    std::size_t read_ahead_bytes = 4096;  ///< at least one header
  };
  explicit FrameReader(const Source& source);

  enum class Progress : std::uint8_t {
    kDrained,  ///< the channel is empty
    kMore,     ///< the channel may have more data than one call may read
    kEnded,    ///< nothing will follow; see reason()
  };
  /// Delivers data that have arrived, at most about kBytesPerRead. With `until_end`, the peer has
  /// sent its last byte, so only the end of the stream proves that the channel is empty.
  Progress read(ByteChannel& channel, bool until_end, Sink& sink);
  /// Redirects a payload that is being received into `memory` to a buffer. Its frame arrives with
  /// an empty payload, because acknowledgements count frames.
  void forget(std::span<const std::byte> memory);
  /// Delivers nothing from now on. A Sink calls it if it closes the stream while it is being
  /// called.
  void stop() { reason_ = "was closed by this process"; }
  /// The reason why no more frames will arrive, as the end of a sentence whose subject is the
  /// stream.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  static constexpr std::size_t kBytesPerRead = 1 << 20;

 private:
  ByteChannel::Received receive(ByteChannel& channel);
  void account(std::size_t received, Sink& sink);
  void parse(Sink& sink);
  void begin_payload(Sink& sink);
  void deliver(std::span<const std::byte> payload, Sink& sink);
  bool sound(const Frame& frame);
  std::byte* own_payload_memory();
  [[nodiscard]] std::span<std::byte> rest() noexcept {
    return in_payload_ ? std::span(target_ + got_, frame_.length - got_) : std::span<std::byte>();
  }
  [[nodiscard]] std::size_t staged() const noexcept { return end_ - begin_; }

  Source source_;
  AlignedBuffer read_ahead_;
  std::size_t begin_ = 0;  // beginning of the bytes in read_ahead_ that are not parsed yet
  std::size_t end_ = 0;

  Frame frame_{};  // the frame whose payload is being received
  bool in_payload_ = false;
  bool discarding_ = false;  // the payload's memory was forgotten
  std::byte* target_ = nullptr;
  std::size_t got_ = 0;    // received bytes of the payload
  AlignedBuffer payload_;  // for payloads that have no other place
  std::string reason_;
};

}  // namespace slipstream
