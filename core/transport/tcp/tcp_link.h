#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace slipstream {

/// The TCP connections to one peer. The object stays valid, with dead streams, after they are
/// closed.
class TcpLink final : public Link {
 public:
  /// `name` is the peer's, in messages. `sockets` are connected, with their handshakes done, in the
  /// order of the streams.
  TcpLink(Poller& poller, std::uint32_t peer, const std::string& name,
          std::vector<Descriptor> sockets, std::uint32_t max_payload_bytes);

  [[nodiscard]] std::uint32_t num_streams() const override;
  [[nodiscard]] bool alive(std::uint32_t stream) const override;
  [[nodiscard]] bool ready(std::uint32_t stream) const override;
  bool send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) override;
  [[nodiscard]] bool copies_payload() const override { return false; }
  void forget(std::span<const std::byte> memory) override;
  [[nodiscard]] std::string describe() const override { return description_; }

  void close() noexcept;

 private:
  std::string description_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace slipstream
