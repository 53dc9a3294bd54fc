#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/descriptor.h"
#include "transport/handshake.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/tls_channel.h"

namespace slipstream {

/// The opening of a connection by either end: the handshake, and then that of TLS if the purpose of
/// the connection is kTls. TLS comes second, so OpenSSL never reads a byte of a stranger.
///
/// The acceptor is TLS's client, because the client is ready first. So with and without TLS, the
/// connector is ready only when the acceptor is. Otherwise a connection that breaks in the last
/// step would be open for the connector alone, which would wait for frames that never come.
class Opening {
 public:
  /// `handshake` has not begun, and `end` is its end.
  Opening(TlsEnd end, Handshake handshake) : end_(end), handshake_(std::move(handshake)) {}

  /// Continues as far as the socket allows. After kPending, call it again when the socket is
  /// readable or writable, or at the deadline. kDone and kFailed are final.
  Handshake::Progress advance(int socket);
  [[nodiscard]] const Handshake& handshake() const noexcept { return handshake_; }
  [[nodiscard]] TimePoint deadline() const noexcept { return handshake_.deadline(); }
  /// The reason of a failure, as the end of a sentence whose subject is the peer.
  [[nodiscard]] const std::string& reason() const noexcept {
    return reason_.empty() ? handshake_.reason() : reason_;
  }
  /// The open connection. Call it once, after kDone.
  Connection take_connection(Descriptor socket);

 private:
  Handshake::Progress open_tls();

  const TlsEnd end_;
  Handshake handshake_;
  std::unique_ptr<TlsChannel> tls_;
  std::string reason_;  // of a failure of TLS
};

}  // namespace slipstream
