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
  SocketAddress address;  ///< port 0; a link-local IPv6 one has the interface as its scope
  bool up = true;
};

/// Which interfaces may be used, in NCCL's syntax: "eth,ib" (names that begin so), "^docker,lo"
/// (all but those), "=eth0,eth1" and "^=eth0" (whole names).
struct InterfaceFilter {
  std::vector<std::string> names;  ///< none: every interface
  bool exact = false;
  bool exclude = false;

  /// An empty text allows every interface. Throws Error(kConfig) when a name is missing.
  static InterfaceFilter parse(std::string_view text);
  [[nodiscard]] bool allows(std::string_view interface) const;
  [[nodiscard]] std::string text() const;
};

/// An address at which peers may find this rank, and why it was chosen.
struct AddressCandidate {
  SocketAddress address;
  std::string interface;
  std::string reason;  ///< "route to 10.0.0.1", "SLIPSTREAM_IFACE=^docker"
};

/// What is known of the way to the peers: the source address of the route to one of them.
struct Route {
  std::string towards;  ///< as the user wrote it
  SocketAddress source;
};

/// The IPv4 and IPv6 addresses of all interfaces. Throws Error(kInternal) when the kernel does not
/// tell.
std::vector<InterfaceAddress> list_interfaces();

/// The address from which this host would send to `destination`; none when it has no route.
std::optional<SocketAddress> route_source(const SocketAddress& destination);

/// The route to a host given by address or name; none when it has no address or no route, and for
/// a name that stands for this host itself, which says nothing of the way to others. Asks the
/// resolver: may block.
std::optional<Route> find_route(const std::string& towards);

/// The addresses that the filter allows, the best first: the source of the route, others of its
/// interface, others, link-local ones. A route over an interface that the filter forbids does not
/// count; one over loopback leaves loopback only. Left out are interfaces that are down, loopback
/// where neither route nor filter names it, and without a filter the bridges of containers and
/// virtual machines, whose addresses are the same on every host.
std::vector<AddressCandidate> order_addresses(const std::vector<InterfaceAddress>& addresses,
                                              const InterfaceFilter& filter,
                                              std::optional<Route> route);

/// Where this rank should listen. `towards` is a host of the job, such as MASTER_ADDR, or empty.
/// Throws Error(kConfig) when no address is left, with what there was. May block in the resolver.
std::vector<AddressCandidate> choose_addresses(const InterfaceFilter& filter,
                                               const std::string& towards);

}  // namespace slipstream
