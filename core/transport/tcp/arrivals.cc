#include "slipstream/arrivals.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/address.h"

namespace slipstream {
namespace {

constexpr std::size_t kMaxGreeting = 64;

/// Sorts one connection; `from` is its other end, unless that is to be asked for.
void sort(int fd, const SocketAddress* from, std::string_view greeting, Arrivals& to) {
  std::array<char, kMaxGreeting> bytes{};
  const std::size_t wanted = std::min(greeting.size(), bytes.size());
  const ssize_t size = wanted == 0 ? 0 : ::recv(fd, bytes.data(), wanted, MSG_PEEK | MSG_DONTWAIT);
  const bool none_yet = size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  const std::string_view first(bytes.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  if (first.size() == wanted && greeting.starts_with(first)) {
    to.greeted.push_back(fd);
  } else if (none_yet || (size > 0 && greeting.starts_with(first))) {
    to.silent.push_back(fd);
  } else {
    to.refused.push_back((from != nullptr ? *from : peer_address(fd)).text());
    ::close(fd);
  }
}

bool is_lack(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Arrivals sort_arrivals(int listener, std::span<const int> silent, std::size_t most,
                       std::string_view greeting) {
  Arrivals arrivals;
  for (const int fd : silent) sort(fd, nullptr, greeting, arrivals);
  for (std::size_t tried = 0; tried < most; ++tried) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto* const address = reinterpret_cast<sockaddr*>(&from);
    const int fd = ::accept4(listener, address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      ++arrivals.accepted;
      const SocketAddress other(*address);
      sort(fd, &other, greeting, arrivals);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || is_lack(errno)) {
      if (is_lack(errno)) arrivals.error = errno;
      break;
    }
    // Other errors concern only the connection that was to be accepted, which has ended with them.
  }
  return arrivals;
}

}  // namespace slipstream
