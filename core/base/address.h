#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

/// An IPv4 or IPv6 address with a port, for socket calls and as text for people.
class SocketAddress {
 public:
  SocketAddress() = default;
  /// `address` is of family AF_INET or AF_INET6.
  explicit SocketAddress(const sockaddr& address);

  /// Parses "10.0.0.1", "10.0.0.1:4000", "fd00::1", "[fd00::1]:4000" or "fe80::1%eth0", but no host
  /// names. The port is 0 if the text has none, and the scope is 0 if this host has no such
  /// interface.
  static std::optional<SocketAddress> parse(std::string_view text);

  [[nodiscard]] std::string host() const;  ///< "10.0.0.1", "fe80::1%eth0"
  [[nodiscard]] std::string text() const;  ///< "10.0.0.1:4000", "[fe80::1%eth0]:4000"

  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The interface that a link-local IPv6 address belongs to; 0 if it is unknown or not needed.
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

/// The addresses of this end and of the other end of a connected socket; a default SocketAddress if
/// there is none.
SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

/// The name of the interface that has this address, or "" if there is none.
std::string interface_of(const SocketAddress& address);

}  // namespace slipstream
