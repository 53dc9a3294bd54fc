#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// An address on which this rank should listen, with the reason.
struct ListenAddress {
  std::string address;    ///< "10.0.0.7", "fd00::1", "fe80::1%eth0"
  std::string interface;  ///< "eth0"
  std::string reason;     ///< "route to 10.0.0.1"
};

/// The addresses on which this rank should listen, the best first. Throws Error(kConfig) if none is
/// left. May block in the resolver.
///
/// `filter` is empty or has NCCL's syntax. `towards` is empty or a host of the job, such as
/// MASTER_ADDR.
std::vector<ListenAddress> choose_listen_addresses(std::string_view filter,
                                                   const std::string& towards);

}  // namespace slipstream
