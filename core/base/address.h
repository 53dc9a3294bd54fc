#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

/// An IPv4 or IPv6 address with a port, as the socket calls take it and as people write it.
class SocketAddress {
 public:
  SocketAddress() = default;
  /// `address` is of family AF_INET or AF_INET6.
  explicit SocketAddress(const sockaddr& address);

  /// "10.0.0.1", "10.0.0.1:4000", "fd00::1", "[fd00::1]:4000", "fe80::1%eth0"; no names of hosts.
  /// Without a port it is 0; a scope that this host does not have is 0.
  static std::optional<SocketAddress> parse(std::string_view text);

  [[nodiscard]] std::string host() const;  ///< "10.0.0.1", "fe80::1%eth0"
  [[nodiscard]] std::string text() const;  ///< "10.0.0.1:4000", "[fe80::1%eth0]:4000"

  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The interface that a link-local IPv6 address belongs to; 0 where none is known or needed.
  [[nodiscard]] std::uint32_t scope() const noexcept;
  [[nodiscard]] SocketAddress with_port(std::uint16_t port) const noexcept;
  [[nodiscard]] SocketAddress with_scope(std::uint32_t scope) const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] bool is_link_local() const noexcept;
  [[nodiscard]] bool same_host(const SocketAddress& other) const noexcept;

  [[nodiscard]] const sockaddr* raw() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] socklen_t raw_size() const noexcept;

 private:
  [[nodiscard]] const sockaddr_in& v4() const noexcept {
    return reinterpret_cast<const sockaddr_in&>(storage_);
  }
  [[nodiscard]] const sockaddr_in6& v6() const noexcept {
    return reinterpret_cast<const sockaddr_in6&>(storage_);
  }

  sockaddr_storage storage_{};
};

/// This end and the other end of a connected socket; a default SocketAddress when it has none.
SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

/// The name of the interface that has this address, or "" when none does.
std::string interface_of(const SocketAddress& address);

}  // namespace slipstream
