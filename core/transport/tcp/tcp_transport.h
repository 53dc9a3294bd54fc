#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "slipstream/log.h"
#include "transport/handshake.h"
#include "transport/identity.h"
#include "transport/tcp/dialler.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/tcp_link.h"
#include "transport/tcp/traffic.h"
#include "transport/transport.h"

namespace slipstream {

struct TcpOptions {
  /// Where to listen: "10.0.0.1", "[fd00::1]:4000", "fe80::1%eth0"; port 0 or none: any. One socket
  /// each. What is listened on is what endpoints() publishes, so no wildcard if peers are to dial.
  std::vector<std::string> bind{"127.0.0.1"};
  std::uint16_t num_streams = 1;  ///< that carry segments, per peer, 1 to 64; the dialler's counts
  Traffic traffic;
  std::uint32_t max_payload_bytes = kMaxSegmentBytes;
  Clock::duration connect_deadline = 30s;  ///< for a peer to be connected, from dial() on
  Clock::duration handshake_deadline = kHandshakeDeadline;
  std::size_t max_unfinished_handshakes = 64;  ///< raised to what the peers open at once
  Log log{};
};

/// TCP connections to other ranks, each with 1 control stream and num_streams others. Of two ranks
/// the higher one dials. Whoever else connects is refused, logged, and does no harm.
class TcpTransport final : public Transport {
 public:
  /// Listens. Throws Error(kConfig) when it cannot.
  TcpTransport(const Identity& self, TcpOptions options);
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  ~TcpTransport() override { close(); }

  /// "10.0.0.1:4000" or "[fd00::1]:4000", for the peers to dial.
  [[nodiscard]] const std::vector<std::string>& endpoints() const noexcept {
    return listener_.endpoints();
  }
  /// Starts connecting to `peer`, of lower rank, at one of the endpoints that it has published, the
  /// best first. poll() goes on with it and calls Sink::connected or Sink::refused.
  void dial(std::uint32_t peer, std::vector<std::string> endpoints);

  bool poll(Sink& sink) override;
  [[nodiscard]] int wait_fd() const override { return poller_.fd(); }
  [[nodiscard]] bool has_links() const override { return !links_.empty(); }
  [[nodiscard]] TimePoint next_event() const override;
  void close() override;

 private:
  /// A peer that dials us, until all its streams have arrived.
  struct Assembly {
    std::vector<Descriptor> sockets;
    TimePoint deadline;
    [[nodiscard]] bool complete() const noexcept {
      return std::all_of(sockets.begin(), sockets.end(), [](auto& socket) { return !!socket; });
    }
  };

  [[nodiscard]] std::string admit(const Hello& hello) const;
  [[nodiscard]] bool connecting() const;
  bool go_on_connecting(Sink& sink);
  bool gather_arrivals(Sink& sink);
  bool settle_diallers(Sink& sink);
  void connect(std::uint32_t peer, std::vector<Descriptor> sockets, Sink& sink);

  const Identity self_;
  const TcpOptions options_;
  Poller poller_;
  Listener listener_;
  std::map<std::uint32_t, std::unique_ptr<Dialler>> diallers_;  // by peer
  std::map<std::uint32_t, Assembly> assemblies_;
  std::map<std::uint32_t, std::unique_ptr<TcpLink>> links_;  // as long as the transport lives
  bool closed_ = false;
};

}  // namespace slipstream
