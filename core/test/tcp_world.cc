#include "test/tcp_world.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/address.h"
#include "slipstream/error.h"
#include "transport/handshake.h"

namespace slipstream::test {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

}  // namespace

Descriptor open_stream(const Identity& self, const std::string& endpoint,
                       const Handshake::Call& call, const std::function<void()>& poll) {
  Descriptor socket = connect_to(endpoint);
  Handshake handshake = Handshake::connect(self, call);
  while (true) {
    switch (handshake.advance(socket.get())) {
      case Handshake::Progress::kPending:
        poll();
        break;
      case Handshake::Progress::kDone:
        return socket;
      default:
        fail(ErrorKind::kInternal, "handshake: ", handshake.reason());
    }
  }
}

Descriptor connect_to(const std::string& endpoint) {
  const SocketAddress address = SocketAddress::parse(endpoint).value();
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  // A blocking connect; the kernel completes it even if nobody accepts.
  if (::connect(socket.get(), address.raw(), address.raw_size()) != 0) {
    fail(ErrorKind::kInternal, "connect: ", std::strerror(errno));
  }
  return socket;
}

bool is_ended(const Descriptor& socket) {
  std::byte byte{};
  const ssize_t count = ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN);
}

std::vector<std::byte> wire_bytes(const Message& message) {
  std::vector<std::byte> bytes(sizeof(Frame) + message.payload.size());
  std::memcpy(bytes.data(), &message.frame, sizeof(Frame));
  std::ranges::copy(message.payload, bytes.data() + sizeof(Frame));
  return bytes;
}

RawPeer::RawPeer(const Identity& self, std::uint32_t peer, const std::string& endpoint,
                 const std::function<void()>& poll, std::uint16_t num_streams,
                 std::uint16_t num_open) {
  for (std::uint16_t stream = 0; stream < num_open; ++stream) {
    const Handshake::Call call{
        .purpose = Purpose::kTcp, .peer = peer, .stream = stream, .num_streams = num_streams};
    sockets_.push_back(open_stream(self, endpoint, call, poll));
  }
}

void RawPeer::write(std::uint16_t stream, std::span<const std::byte> bytes,
                    const std::function<void()>& poll) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(sockets_.at(stream).get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    if (sent < 0 && errno != EAGAIN) fail(ErrorKind::kInternal, "send: ", std::strerror(errno));
    poll();
  }
}

std::vector<std::byte> RawPeer::read(std::uint16_t stream) {
  std::vector<std::byte> bytes(kReadBytes);
  const ssize_t count = ::recv(sockets_.at(stream).get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

bool RawPeer::ended(std::uint16_t stream) const { return is_ended(sockets_.at(stream)); }

void RawPeer::reset(std::uint16_t stream) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(sockets_.at(stream).get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(stream);
}

}  // namespace slipstream::test
