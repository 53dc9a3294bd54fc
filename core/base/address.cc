#include "base/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <array>
#include <charconv>
#include <cstring>

#include "slipstream/error.h"

namespace slipstream {
namespace {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::uint32_t parse_scope(const std::string& text) {
  const unsigned int index = ::if_nametoindex(text.c_str());
  return index != 0 ? index : parse_number<std::uint32_t>(text).value_or(0);
}

std::string scope_suffix(std::uint32_t scope) {
  if (scope == 0) return "";
  std::array<char, IF_NAMESIZE> name{};
  return ::if_indextoname(scope, name.data()) != nullptr ? concat("%", name.data())
                                                         : concat("%", scope);
}

/// A text split at the colon before the port; without a port, `port` is "0".
struct HostPort {
  std::string_view host;
  std::string_view port = "0";
};

std::optional<HostPort> split(std::string_view text) {
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return std::nullopt;
    return HostPort{text.substr(1, end - 1), rest.empty() ? "0" : rest.substr(1)};
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos) {
    return HostPort{text};  // IPv4 without a port, or IPv6, which has at least two colons
  }
  return HostPort{text.substr(0, colon), text.substr(colon + 1)};
}

using SocketName = int (*)(int, sockaddr*, socklen_t*);

SocketAddress name_of(SocketName call, int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if (call(fd, address, &size) != 0) return {};
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) return {};
  return SocketAddress(*address);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr& address) {
  SLIPSTREAM_ASSERT(address.sa_family == AF_INET || address.sa_family == AF_INET6, "family ",
                    address.sa_family);
  std::memcpy(&storage_, &address,
              address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
}

std::optional<SocketAddress> SocketAddress::parse(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return std::nullopt;
  const auto port = parse_number<std::uint16_t>(parts->port);
  if (!port) return std::nullopt;

  const std::size_t percent = parts->host.find('%');
  const std::string host(parts->host.substr(0, percent));
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage_);
  if (percent == std::string_view::npos && ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(*port);
    return address;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage_);
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(*port);
  if (percent != std::string_view::npos) {
    v6.sin6_scope_id = parse_scope(std::string(parts->host.substr(percent + 1)));
  }
  return address;
}

std::string SocketAddress::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  switch (family()) {
    case AF_INET:
      return ::inet_ntop(AF_INET, &v4().sin_addr, text.data(), text.size());
    case AF_INET6:
      return ::inet_ntop(AF_INET6, &v6().sin6_addr, text.data(), text.size()) +
             scope_suffix(scope());
    default:
      return "an unknown address";
  }
}

std::string SocketAddress::text() const {
  return family() == AF_INET6 ? concat("[", host(), "]:", port()) : concat(host(), ":", port());
}

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(family() == AF_INET6 ? v6().sin6_port : v4().sin_port);
}

std::uint32_t SocketAddress::scope() const noexcept {
  return family() == AF_INET6 ? v6().sin6_scope_id : 0;
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const noexcept {
  SocketAddress copy = *this;
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(copy.storage_).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(copy.storage_).sin_port = htons(port);
  }
  return copy;
}

SocketAddress SocketAddress::with_scope(std::uint32_t scope) const noexcept {
  SocketAddress copy = *this;
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(copy.storage_).sin6_scope_id = scope;
  return copy;
}

bool SocketAddress::is_loopback() const noexcept {
  return family() == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6().sin6_addr)
                              : (ntohl(v4().sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
}

bool SocketAddress::is_link_local() const noexcept {
  return family() == AF_INET6 ? IN6_IS_ADDR_LINKLOCAL(&v6().sin6_addr)
                              : (ntohl(v4().sin_addr.s_addr) >> 16) == 0xa9fe;  // 169.254/16
}

bool SocketAddress::same_host(const SocketAddress& other) const noexcept {
  if (family() != other.family()) return false;
  return family() == AF_INET6 ? IN6_ARE_ADDR_EQUAL(&v6().sin6_addr, &other.v6().sin6_addr) &&
                                    (!is_link_local() || scope() == other.scope())
                              : v4().sin_addr.s_addr == other.v4().sin_addr.s_addr;
}

socklen_t SocketAddress::raw_size() const noexcept {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

SocketAddress local_address(int fd) { return name_of(::getsockname, fd); }

SocketAddress peer_address(int fd) { return name_of(::getpeername, fd); }

std::string interface_of(const SocketAddress& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string name;
  for (const ifaddrs* entry = list; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != address.family()) continue;
    if (SocketAddress(*entry->ifa_addr).same_host(address)) name = entry->ifa_name;
  }
  ::freeifaddrs(list);
  return name;
}

}  // namespace slipstream
