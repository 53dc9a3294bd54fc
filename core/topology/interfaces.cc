#include "topology/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::array<std::string_view, 4> kSameOnEveryHost{"docker", "virbr", "cni", "podman"};

bool is_same_on_every_host(std::string_view interface) {
  return std::ranges::any_of(kSameOnEveryHost,
                             [&](auto prefix) { return interface.starts_with(prefix); });
}

/// The quality of an address; lower is better. Peers may use an address up to kLinkLocal.
enum Rank : int {
  kRouteSource,
  kRouteFamily,
  kRouteInterface,
  kOther,
  kLinkLocal,
  kOutsideLoopback,
  kContainerBridge,
  kLoopback,
  kForbidden,
  kDown,
};

Rank rank_of(const InterfaceAddress& candidate, const InterfaceFilter& filter,
             const std::optional<Route>& route, const std::string& route_interface) {
  const SocketAddress& address = candidate.address;
  const bool named = !filter.names.empty() && !filter.exclude;
  if (!candidate.up) return kDown;
  if (!filter.allows(candidate.interface)) return kForbidden;
  if (route && address.same_host(route->source)) return kRouteSource;
  const bool loopback_wanted = named || (route && route->source.is_loopback());
  if (address.is_loopback() && !loopback_wanted) return kLoopback;
  if (filter.names.empty() && is_same_on_every_host(candidate.interface)) return kContainerBridge;
  if (route && route->source.is_loopback() && !address.is_loopback()) return kOutsideLoopback;
  if (address.is_link_local()) return kLinkLocal;
  if (!route || candidate.interface != route_interface) return kOther;
  return address.family() == route->source.family() ? kRouteFamily : kRouteInterface;
}

std::string refusal_of(Rank rank, const InterfaceFilter& filter,
                       const std::optional<Route>& route) {
  switch (rank) {
    case kOutsideLoopback:
      return concat("the route to ", route->towards, " stays on this host");
    case kContainerBridge:
      return "a bridge of containers or virtual machines, whose address is the same on every host";
    case kLoopback:
      return "loopback does not reach other hosts";
    case kForbidden:
      return concat("SLIPSTREAM_IFACE=", filter.text(),
                    filter.exclude ? " excludes it" : " does not name it");
    default:
      return "the interface is down";
  }
}

std::string reason_of(Rank rank, const InterfaceFilter& filter, const std::optional<Route>& route) {
  if (rank > kLinkLocal) return refusal_of(rank, filter, route);
  if (rank == kRouteSource) return concat("route to ", route->towards);
  if (!filter.names.empty()) return concat("SLIPSTREAM_IFACE=", filter.text());
  if (rank == kRouteFamily || rank == kRouteInterface) {
    return concat("interface of the route to ", route->towards);
  }
  return "an interface that is up";
}

std::string interface_with(const std::vector<InterfaceAddress>& addresses,
                           const std::optional<Route>& route) {
  if (!route) return "";
  const auto found = std::ranges::find_if(
      addresses, [&](const auto& each) { return each.address.same_host(route->source); });
  return found == addresses.end() ? "" : found->interface;
}

std::string describe(const std::vector<InterfaceAddress>& addresses) {
  std::string text;
  for (const InterfaceAddress& each : addresses) {
    text += concat(text.empty() ? "" : ", ", each.interface, " ", each.address.host(),
                   each.up ? "" : " (down)");
  }
  return text.empty() ? "none" : text;
}

std::vector<AddressCandidate> usable_of(std::vector<AddressCandidate> candidates) {
  std::erase_if(candidates, [](const AddressCandidate& each) { return !each.usable; });
  return candidates;
}

/// On many systems the name of the host itself resolves to loopback (127.0.1.1 on Debian).
bool means_this_host(const std::string& towards, const SocketAddress& address) {
  return address.is_loopback() && !SocketAddress::parse(towards) &&
         !towards.starts_with("localhost") && !towards.starts_with("ip6-localhost");
}

}  // namespace

InterfaceFilter InterfaceFilter::parse(std::string_view text) {
  InterfaceFilter filter;
  if (text.empty()) return filter;
  std::string_view rest = text;
  filter.exclude = rest.starts_with('^');
  if (filter.exclude) rest.remove_prefix(1);
  filter.exact = rest.starts_with('=');
  if (filter.exact) rest.remove_prefix(1);
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    if (name.empty()) {
      fail(ErrorKind::kConfig, "SLIPSTREAM_IFACE is '", text,
           "'; allowed: names of interfaces such as eth,ib or =eth0 or ^docker,lo");
    }
    filter.names.emplace_back(name);
    if (comma == std::string_view::npos) return filter;
    rest.remove_prefix(comma + 1);
  }
}

bool InterfaceFilter::allows(std::string_view interface) const {
  if (names.empty()) return true;
  const bool named = std::ranges::any_of(names, [&](const std::string& name) {
    return exact ? interface == name : interface.starts_with(name);
  });
  return named != exclude;
}

std::string InterfaceFilter::text() const {
  std::string text = concat(exclude ? "^" : "", exact ? "=" : "");
  for (std::size_t i = 0; i < names.size(); ++i) text += concat(i == 0 ? "" : ",", names[i]);
  return text;
}

std::vector<InterfaceAddress> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    fail(ErrorKind::kInternal, "getifaddrs failed: ", std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    addresses.push_back(
        {entry->ifa_name, SocketAddress(*entry->ifa_addr), (entry->ifa_flags & IFF_UP) != 0});
  }
  return addresses;
}

std::optional<SocketAddress> route_source(const SocketAddress& destination) {
  const int fd = ::socket(destination.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;  // the kernel has no IPv6
  const Descriptor socket(fd, "socket");
  // Connecting a datagram socket sends nothing. The kernel looks up the route, and requires a port
  // other than 0.
  const SocketAddress target = destination.port() == 0 ? destination.with_port(9) : destination;
  if (::connect(socket.get(), target.raw(), target.raw_size()) != 0) return std::nullopt;
  return local_address(socket.get()).with_port(0);
}

std::optional<Route> find_route(const std::string& towards) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (towards.empty() || ::getaddrinfo(towards.c_str(), nullptr, &hints, &list) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    const SocketAddress address(*entry->ai_addr);
    if (means_this_host(towards, address)) continue;
    if (const auto source = route_source(address)) return Route{towards, *source};
  }
  return std::nullopt;
}

std::vector<AddressCandidate> judge_addresses(const std::vector<InterfaceAddress>& addresses,
                                              const InterfaceFilter& filter,
                                              std::optional<Route> route) {
  const std::string route_interface = interface_with(addresses, route);
  if (!filter.allows(route_interface)) route.reset();  // the user's filter has priority
  std::vector<std::pair<Rank, AddressCandidate>> ranked;
  for (const InterfaceAddress& each : addresses) {
    const Rank rank = rank_of(each, filter, route, route_interface);
    ranked.push_back(
        {rank, {each.address, each.interface, reason_of(rank, filter, route), rank <= kLinkLocal}});
  }
  std::ranges::stable_sort(ranked, {}, [](const auto& each) { return each.first; });
  std::vector<AddressCandidate> ordered;
  for (auto& [rank, candidate] : ranked) ordered.push_back(std::move(candidate));
  return ordered;
}

std::vector<AddressCandidate> order_addresses(const std::vector<InterfaceAddress>& addresses,
                                              const InterfaceFilter& filter,
                                              std::optional<Route> route) {
  return usable_of(judge_addresses(addresses, filter, std::move(route)));
}

std::vector<AddressCandidate> explain_addresses(const InterfaceFilter& filter,
                                                const std::string& towards) {
  const auto addresses = list_interfaces();
  auto candidates = judge_addresses(addresses, filter, find_route(towards));
  if (!filter.names.empty() || std::ranges::any_of(candidates, &AddressCandidate::usable)) {
    return candidates;
  }
  // On a host without a network, ranks can still reach one another.
  for (AddressCandidate& each : candidates) {
    if (!each.address.is_loopback()) continue;
    each.reason = "no other interface is up";
    each.usable = true;
  }
  std::ranges::stable_partition(candidates, &AddressCandidate::usable);
  return candidates;
}

std::vector<AddressCandidate> choose_addresses(const InterfaceFilter& filter,
                                               const std::string& towards) {
  auto candidates = usable_of(explain_addresses(filter, towards));
  if (!candidates.empty()) return candidates;
  fail(ErrorKind::kConfig, "SLIPSTREAM_IFACE=", filter.text(),
       " leaves no address to listen on; this host has ", describe(list_interfaces()),
       ": name one of these interfaces");
}

}  // namespace slipstream
