#include "slipstream/listen.h"

#include "topology/interfaces.h"

namespace slipstream {

std::vector<ListenAddress> choose_listen_addresses(std::string_view filter,
                                                   const std::string& towards) {
  std::vector<ListenAddress> chosen;
  for (const AddressCandidate& each : choose_addresses(InterfaceFilter::parse(filter), towards)) {
    chosen.push_back({each.address.host(), each.interface, each.reason});
  }
  return chosen;
}

}  // namespace slipstream
