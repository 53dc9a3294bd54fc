#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// An address of this rank, with the reason for which it listens there, or does not.
struct ListenAddress {
  std::string address;    ///< "10.0.0.7", "fd00::1", "fe80::1%eth0"
  std::string interface;  ///< "eth0"
  std::string reason;     ///< "route to 10.0.0.1", "the interface is down"
  bool usable = true;     ///< whether this rank would listen there
};

/// The addresses on which this rank should listen, the best first. Throws Error(kConfig) if none is
/// left. May block in the resolver.
///
/// `filter` is empty or has NCCL's syntax. `towards` is empty or a host of the job, such as
/// MASTER_ADDR.
std::vector<ListenAddress> choose_listen_addresses(std::string_view filter,
                                                   const std::string& towards);

/// The same addresses, followed by all others of this host, with the reason why they are not used.
/// Does not throw if none is usable. May block in the resolver.
std::vector<ListenAddress> explain_listen_addresses(std::string_view filter,
                                                    const std::string& towards);

}  // namespace slipstream
