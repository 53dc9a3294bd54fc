#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// An address at which this rank should listen, and why.
struct ListenAddress {
  std::string address;    ///< "10.0.0.7", "fd00::1", "fe80::1%eth0"
  std::string interface;  ///< "eth0"
  std::string reason;     ///< "route to 10.0.0.1"
};

/// Where this rank should listen, the best first. `filter` is in NCCL's syntax or empty; `towards`
/// is a host of the job, such as MASTER_ADDR, or empty. Throws Error(kConfig) when no address is
/// left. May block in the resolver.
std::vector<ListenAddress> choose_listen_addresses(std::string_view filter,
                                                   const std::string& towards);

}  // namespace slipstream
