// The frames of a peer, in pieces of any size, while memory is forgotten and the stream is closed.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fuzz/input.h"
#include "transport/tcp/frame_reader.h"

namespace {

using slipstream::Frame;
using slipstream::FrameReader;
using slipstream::Link;
using slipstream::fuzz::expect;
using slipstream::fuzz::Input;

constexpr std::uint32_t kMostPayload = 8192;

/// A connection whose bytes are the rest of the input.
class Bytes final : public slipstream::ByteChannel {
 public:
  explicit Bytes(Input& input) : input_(input) {}

  Received receive(std::span<const iovec> parts) override {
    std::size_t most = input_.number<std::uint8_t>() * std::size_t{33};
    Received received;
    for (const iovec& part : parts) {
      const auto bytes = input_.bytes(std::min(most, part.iov_len));
      if (!bytes.empty()) std::memcpy(part.iov_base, bytes.data(), bytes.size());
      received.bytes += bytes.size();
      most -= bytes.size();
      if (bytes.size() < part.iov_len) break;
    }
    received.drained = most > 0;
    return received;
  }
  [[nodiscard]] bool ended() const override { return input_.empty(); }
  [[nodiscard]] const std::string& receive_failure() const override { return none_; }
  std::size_t send(std::span<const iovec> /*parts*/) override { return 0; }
  [[nodiscard]] bool holds_bytes() const override { return false; }
  void flush() override {}
  [[nodiscard]] const std::string& send_failure() const override { return none_; }

 private:
  Input& input_;
  const std::string none_;
};

/// Gives payloads memory of exactly their size, and takes some of it away before they are whole.
class Receiver final : public slipstream::Sink {
 public:
  Receiver(Input& input, FrameReader& reader) : input_(input), reader_(reader) {}

  void connected(std::uint32_t /*peer*/, Link& /*link*/) override {}
  void refused(std::uint32_t /*peer*/, const std::string& /*reason*/) override {}
  std::byte* place(std::uint32_t /*peer*/, const Frame& frame) override {
    expect(frame.length > 0 && frame.length <= kMostPayload);
    if (input_.coin()) return nullptr;
    memory_.assign(frame.length, std::byte{});
    memory_.shrink_to_fit();
    return memory_.data();
  }
  void arrived(std::uint32_t /*peer*/, std::uint32_t /*stream*/, const Frame& frame,
               std::span<const std::byte> payload) override {
    expect(frame.kind <= slipstream::kLastFrameKind);
    expect(payload.size() == frame.length || (payload.empty() && forgotten_));
    for (const std::byte byte : payload) sum_ += static_cast<unsigned>(byte);
    memory_ = {};
    forgotten_ = false;
    if (input_.below(64) == 1) reader_.stop();
  }
  void stream_lost(std::uint32_t /*peer*/, std::uint32_t /*stream*/,
                   const std::string& /*reason*/) override {}

  void forget() {
    if (memory_.empty()) return;
    reader_.forget(memory_);
    memory_ = {};
    forgotten_ = true;
  }

 private:
  Input& input_;
  FrameReader& reader_;
  std::vector<std::byte> memory_;
  bool forgotten_ = false;
  unsigned sum_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::size_t read_ahead = sizeof(Frame) + input.below(16) * std::size_t{64};
  FrameReader reader(
      {.peer = 1, .max_payload_bytes = kMostPayload, .read_ahead_bytes = read_ahead});
  Bytes channel(input);
  Receiver receiver(input, reader);
  for (int round = 0; round < 1000; ++round) {
    const auto progress = reader.read(channel, input.coin(), receiver);
    if (progress == FrameReader::Progress::kEnded) break;
    if (input.below(8) == 1) receiver.forget();
  }
  expect(!reader.reason().empty() || !input.empty());
  return 0;
}
