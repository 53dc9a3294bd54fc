#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/tcp/connection.h"
#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace slipstream {

/// The TCP connections to one peer. The object stays valid, with dead streams, after they are
/// closed.
class TcpLink final : public Link {
 public:
  struct Options {
    std::uint32_t peer = 0;
    std::string name;  ///< of the peer, in messages
    bool tls = false;  ///< for messages
    std::uint32_t max_payload_bytes = kMaxSegmentBytes;
    bool reconnects = false;
  };

  /// `connections` are in the order of the streams. Streams that are lost are added to `lost`,
  /// which must outlive the link.
  TcpLink(Poller& poller, Options options, std::vector<Connection> connections,
          std::vector<StreamId>& lost);

  [[nodiscard]] std::uint32_t num_streams() const override;
  [[nodiscard]] bool alive(std::uint32_t stream) const override;
  [[nodiscard]] bool ready(std::uint32_t stream) const override;
  [[nodiscard]] bool holds(std::uint32_t stream) const override {
    return streams_[stream]->holds();
  }
  bool send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) override;
  [[nodiscard]] bool copies_payload() const override { return false; }
  void forget(std::span<const std::byte> memory) override;
  [[nodiscard]] std::uint64_t tag(std::uint32_t stream) const override { return tags_[stream]; }
  [[nodiscard]] bool reconnects() const override { return reconnects_; }
  void give_up() override;
  [[nodiscard]] std::string describe() const override { return description_; }

  [[nodiscard]] bool any_alive() const;
  /// Reports the loss of a stream that lives.
  void abandon(std::uint32_t stream, const std::string& why, Sink& sink);
  /// Replaces the connection of a stream that is lost.
  void reopen(std::uint32_t stream, Connection connection);
  void close() noexcept;

 private:
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::uint32_t number, Connection connection);

  Poller& poller_;
  const Options options_;
  const std::string description_;
  std::vector<StreamId>& lost_;
  bool reconnects_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::uint64_t> tags_;  // of the streams' connections, also of lost ones
};

}  // namespace slipstream
