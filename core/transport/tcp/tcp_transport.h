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
#include "transport/tcp/connection.h"
#include "transport/tcp/dialler.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/reconnector.h"
#include "transport/tcp/tcp_link.h"
#include "transport/tcp/traffic.h"
#include "transport/transport.h"

namespace slipstream {

struct TcpOptions {
  /// Addresses to listen on, with one socket each: "10.0.0.1", "[fd00::1]:4000", "fe80::1%eth0";
  /// without a port, or with port 0, any port is used. endpoints() publishes these addresses, so a
  /// wildcard is not possible if peers are to dial.
  std::vector<std::string> bind{"127.0.0.1"};
  /// Streams per peer that carry segments, 1 to 64; the dialler's number counts.
  std::uint16_t num_streams = 1;
  /// Whether connections are encrypted by TLS; equal on all ranks.
  bool tls = false;
  Traffic traffic;
  std::uint32_t max_payload_bytes = kMaxSegmentBytes;
  Clock::duration connect_deadline = 30s;  ///< time until a peer must be connected, from dial() on
  Clock::duration handshake_deadline = kHandshakeDeadline;
  /// Raised to the number that the peers open at the same time.
  std::size_t max_unfinished_handshakes = 64;
  /// Whether lost streams are opened again.
  bool reconnects = false;
  /// Time without acknowledgements after which a connection is given up; 0: the system's, which is
  /// a quarter of an hour.
  std::chrono::milliseconds silence{};
  /// The name of the peer in messages, in a world of two; empty: "rank N".
  std::string peer_name;
  Log log{};
};

/// TCP connections to other ranks, each with 1 control stream and num_streams other streams. The
/// higher one of two ranks dials. Everybody else who connects is refused and logged, and does no
/// harm.
class TcpTransport final : public Transport {
 public:
  /// Listens. Throws Error(kConfig) if it cannot.
  TcpTransport(const Identity& self, TcpOptions options);
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  ~TcpTransport() override { close(); }

  /// "10.0.0.1:4000" or "[fd00::1]:4000", for the peers to dial.
  [[nodiscard]] const std::vector<std::string>& endpoints() const noexcept {
    return listener_.endpoints();
  }
  /// Starts to connect to `peer`, a lower rank, at one of the endpoints that it has published, with
  /// the best first. poll() continues the attempt and calls Sink::connected or Sink::refused.
  void dial(std::uint32_t peer, std::vector<std::string> endpoints);
  /// Records the addresses of a higher rank, which are needed if the streams of that rank are lost.
  void know(std::uint32_t peer, const std::vector<std::string>& endpoints) {
    reconnector_.know(peer, endpoints, listener_.link_local_scope());
  }
  /// Closes the listening sockets; links and attempts to dial go on.
  void stop_listening() { listener_.close(); }

  bool poll(Sink& sink) override;
  [[nodiscard]] int wait_fd() const override { return poller_.fd(); }
  [[nodiscard]] bool has_links() const override { return !links_.empty(); }
  [[nodiscard]] TimePoint next_event() const override;
  void close() override;

 private:
  /// The streams of a peer that dials us, until all of them have arrived.
  struct Assembly {
    std::vector<Connection> connections;
    TimePoint deadline;
    [[nodiscard]] bool complete() const noexcept {
      return std::ranges::all_of(connections, [](auto& each) { return !!each.socket; });
    }
  };

  [[nodiscard]] std::string admit(const Hello& hello) const;
  [[nodiscard]] std::string admit_renewal(const Hello& hello) const;
  [[nodiscard]] std::string name_of(std::uint32_t peer) const;
  [[nodiscard]] Purpose purpose() const { return options_.tls ? Purpose::kTls : Purpose::kTcp; }
  [[nodiscard]] bool connecting() const;
  bool go_on_connecting(Sink& sink);
  bool gather_arrivals(Sink& sink);
  bool settle_diallers(Sink& sink);
  void connect(std::uint32_t peer, std::vector<Connection> connections, Sink& sink);
  void prepare(const Descriptor& socket) const;
  // For links that reconnect.
  bool reconnect(Sink& sink);
  void begin_to_reconnect(TimePoint now);
  void find_unreachable(TimePoint now, Sink& sink);
  void take_renewal(Listener::Arrival arrival, Sink& sink);
  void reopen(StreamId stream, Connection connection, Sink& sink);

  const Identity self_;
  const TcpOptions options_;
  Poller poller_;
  Listener listener_;
  std::map<std::uint32_t, std::unique_ptr<Dialler>> diallers_;  // by peer
  std::map<std::uint32_t, Assembly> assemblies_;
  std::vector<StreamId> lost_;  // streams that were lost in this poll()
  std::map<std::uint32_t, std::unique_ptr<TcpLink>> links_;  // kept as long as the transport lives
  Reconnector reconnector_;
  bool closed_ = false;
};

}  // namespace slipstream
