#include "transport/tcp/plain_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "slipstream/error.h"

namespace slipstream {
namespace {

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return message;
}

std::size_t size_of(std::span<const iovec> parts) {
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

}  // namespace

ByteChannel::Received PlainChannel::receive(std::span<const iovec> parts) {
  msghdr message = message_of(parts);
  while (true) {
    const ssize_t received = ::recvmsg(socket_, &message, MSG_DONTWAIT);
    if (received > 0) {
      const auto bytes = static_cast<std::size_t>(received);
      return {bytes, bytes < size_of(parts)};
    }
    if (received == 0) {
      ended_ = true;
    } else if (errno == EINTR) {
      continue;
    } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
      receive_failure_ = concat("recvmsg failed: ", std::strerror(errno));
    }
    return {0, true};
  }
}

std::size_t PlainChannel::send(std::span<const iovec> parts) {
  const msghdr message = message_of(parts);
  while (true) {
    const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      send_failure_ = concat("sendmsg failed: ", std::strerror(errno));
    }
    return 0;
  }
}

}  // namespace slipstream
