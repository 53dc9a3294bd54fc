#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "transport/tcp/byte_channel.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/frame_writer.h"
#include "transport/tcp/poller.h"

namespace slipstream {

/// One connection to a peer whose handshake is done.
class Stream final : public Watcher {
 public:
  /// `peer` is the name of the peer in messages. The stream adds itself to `lost` when it is lost.
  Stream(Poller& poller, const std::string& peer, Connection connection,
         const FrameReader::Source& source, std::vector<StreamId>& lost);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() override { close(); }

  [[nodiscard]] bool alive() const noexcept { return socket_ && !writer_.failed(); }
  [[nodiscard]] bool ready() const noexcept { return socket_ && writer_.ready(); }
  [[nodiscard]] bool holds() const noexcept { return socket_ && writer_.holds(); }
  bool send(const Frame& frame, std::span<const std::byte> payload);
  void forget(std::span<const std::byte> memory);
  /// Closes the connection at once without telling anybody; nothing is delivered any more.
  void close() noexcept;
  /// Closes the connection and reports its loss.
  void abandon(const std::string& why, Sink& sink);
  bool on_events(std::uint32_t events, Sink& sink) override;

 private:
  Poller& poller_;
  Descriptor socket_;
  const std::unique_ptr<ByteChannel> channel_;
  const FrameReader::Source source_;
  const std::string name_;  // "stream 1 of rank 3 (10.0.0.2:4000)"
  std::vector<StreamId>& lost_;
  FrameWriter writer_;
  FrameReader reader_;
  bool peer_is_done_ = false;  // the peer has closed, or the connection is broken
};

}  // namespace slipstream
