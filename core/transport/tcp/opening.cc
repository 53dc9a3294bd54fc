#include "transport/tcp/opening.h"

#include <utility>

#include "transport/tcp/plain_channel.h"

namespace slipstream {

using Progress = Handshake::Progress;

Progress Opening::advance(int socket) {
  if (!reason_.empty()) return Progress::kFailed;
  if (tls_ != nullptr) return open_tls();
  const Progress progress = handshake_.advance(socket);
  const bool wants_tls = handshake_.hello().purpose == Purpose::kTls;
  if (progress != Progress::kDone || !wants_tls) return progress;
  tls_ = std::make_unique<TlsChannel>(socket, end_, handshake_.secret());
  return open_tls();
}

Progress Opening::open_tls() {
  switch (tls_->open()) {
    case TlsChannel::Progress::kDone:
      return Progress::kDone;
    case TlsChannel::Progress::kFailed:
      reason_ = tls_->open_failure();
      return Progress::kFailed;
    default:
      if (Clock::now() < deadline()) return Progress::kPending;
      reason_ = "did not finish the handshake of TLS in time";
      return Progress::kFailed;
  }
}

Connection Opening::take_connection(Descriptor socket) {
  Connection connection{.socket = std::move(socket), .tag = handshake_.tag()};
  if (tls_ != nullptr) {
    connection.channel = std::move(tls_);
  } else {
    connection.channel = std::make_unique<PlainChannel>(connection.socket.get());
  }
  return connection;
}

}  // namespace slipstream
