#include "transport/tcp/attempt.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

/// When a free port of the own host is dialled, the kernel may choose that port as the source. The
/// socket is then connected to itself.
bool connected_to_itself(int fd) {
  const SocketAddress here = local_address(fd);
  const SocketAddress there = peer_address(fd);
  return here.port() == there.port() && here.same_host(there);
}

}  // namespace

Attempt::Attempt(Poller& poller, const Identity& self, const SocketAddress& endpoint,
                 const Handshake::Call& call, TimePoint deadline)
    : poller_(poller), opening_(TlsEnd::kServer, Handshake::connect(self, call, deadline)) {
  connect(endpoint);
}

void Attempt::connect(const SocketAddress& endpoint) {
  const int fd =
      ::socket(endpoint.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (fd < 0) {
    return stop(
        concat("was not tried, because this host opened no socket: ", std::strerror(errno)));
  }
  socket_ = Descriptor(fd, "socket");
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // The kernel may choose a port on which another rank is about to listen.
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  poller_.watch(socket_.get(), *this);
  if (::connect(socket_.get(), endpoint.raw(), endpoint.raw_size()) != 0 && errno != EINPROGRESS) {
    refuse(errno);
  }
}

bool Attempt::on_events(std::uint32_t /*events*/, Sink& /*sink*/) {
  go_on();
  return false;
}

void Attempt::go_on() {
  if (state_ != State::kPending) return;
  if (!connected_) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return refuse(error);
    if (peer_address(socket_.get()).family() == AF_UNSPEC) return;  // not connected yet
    if (connected_to_itself(socket_.get())) return stop("has no listener");
    connected_ = true;
  }
  switch (opening_.advance(socket_.get())) {
    case Handshake::Progress::kPending:
      return;
    case Handshake::Progress::kDone:
      state_ = State::kDone;
      return;
    default:
      return stop(opening_.reason());
  }
}

Attempt::State Attempt::check(TimePoint now) {
  if (state_ != State::kPending || now < deadline()) return state_;
  go_on();
  if (state_ == State::kPending) {
    const auto waited = std::chrono::round<std::chrono::milliseconds>(deadline() - started_);
    stop(concat("did not accept the connection: no answer within ", seconds(waited), " s"));
  }
  return state_;
}

Connection Attempt::take_connection() {
  poller_.unwatch(socket_.get());
  return opening_.take_connection(std::move(socket_));
}

bool Attempt::hopeless() const noexcept {
  const Handshake::Failure failure = opening_.handshake().failure();
  return failure == Handshake::Failure::kStranger || failure == Handshake::Failure::kRefused;
}

void Attempt::refuse(int error) {
  error_ = error;
  stop(concat("did not accept the connection: ", std::strerror(error)));
}

void Attempt::stop(std::string reason) {
  state_ = State::kFailed;
  reason_ = std::move(reason);
  release();
}

void Attempt::release() noexcept {
  if (socket_) poller_.unwatch(socket_.get());
  socket_.reset();
}

}  // namespace slipstream
