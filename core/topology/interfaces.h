#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"

namespace slipstream {

/// One address of one network interface of this host.
struct InterfaceAddress {
  std::string interface;
  SocketAddress address;  ///< port 0; a link-local IPv6 address has the interface as its scope
  bool up = true;
};

/// The interfaces that may be used, in NCCL's syntax: "eth,ib" (names with these prefixes),
/// "^docker,lo" (all others), "=eth0,eth1" and "^=eth0" (exact names).
struct InterfaceFilter {
  std::vector<std::string> names;  ///< empty: every interface
  bool exact = false;
  bool exclude = false;

  /// Parses a filter; an empty text allows every interface. Throws Error(kConfig) if a name is
  /// missing.
  static InterfaceFilter parse(std::string_view text);
  [[nodiscard]] bool allows(std::string_view interface) const;
  [[nodiscard]] std::string text() const;
};

/// An address of this rank, with the reason for which peers may use it, or may not.
struct AddressCandidate {
  SocketAddress address;
  std::string interface;
  std::string reason;  ///< "route to 10.0.0.1", "SLIPSTREAM_IFACE=^docker", "the interface is down"
  bool usable = true;
};

/// The route to a peer, which gives the source address for peers.
struct Route {
  std::string towards;  ///< as the user wrote it
  SocketAddress source;
};

/// The IPv4 and IPv6 addresses of all interfaces. Throws Error(kInternal) if the kernel does not
/// list them.
std::vector<InterfaceAddress> list_interfaces();

/// The address from which this host would send to `destination`; nothing if there is no route.
std::optional<SocketAddress> route_source(const SocketAddress& destination);

/// The route to a host, given by address or name. Returns nothing if the host has no address or no
/// route, or if the name stands for this host itself, because that says nothing about the way to
/// other hosts. Asks the resolver, so it may block.
std::optional<Route> find_route(const std::string& towards);

/// The addresses that the filter allows, with the best first: the source address of the route,
/// other addresses of its interface, other addresses, and link-local addresses. A route over a
/// forbidden interface is ignored. After a route over loopback, only loopback addresses remain. The
/// result leaves out interfaces that are down, loopback unless the route or the filter names it,
/// and, without a filter, the bridges of containers and virtual machines, whose addresses are the
/// same on every host.
std::vector<AddressCandidate> order_addresses(const std::vector<InterfaceAddress>& addresses,
                                              const InterfaceFilter& filter,
                                              std::optional<Route> route);

/// The addresses in the same order, followed by those that order_addresses() leaves out.
std::vector<AddressCandidate> judge_addresses(const std::vector<InterfaceAddress>& addresses,
                                              const InterfaceFilter& filter,
                                              std::optional<Route> route);

/// The addresses on which this rank should listen. `towards` is a host of the job, such as
/// MASTER_ADDR, or empty. Throws Error(kConfig) with the available addresses if none remains. May
/// block in the resolver.
std::vector<AddressCandidate> choose_addresses(const InterfaceFilter& filter,
                                               const std::string& towards);

/// The addresses of choose_addresses(), followed by all others of this host, with the reason why
/// they are not used. Does not throw if none is usable. May block in the resolver.
std::vector<AddressCandidate> explain_addresses(const InterfaceFilter& filter,
                                                const std::string& towards);

}  // namespace slipstream
