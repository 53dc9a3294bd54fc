#include "slipstream/listen.h"

#include "topology/interfaces.h"

namespace slipstream {
namespace {

std::vector<ListenAddress> listed(const std::vector<AddressCandidate>& candidates) {
  std::vector<ListenAddress> addresses;
  for (const AddressCandidate& each : candidates) {
    addresses.push_back({each.address.host(), each.interface, each.reason, each.usable});
  }
  return addresses;
}

}  // namespace

std::vector<ListenAddress> choose_listen_addresses(std::string_view filter,
                                                   const std::string& towards) {
  return listed(choose_addresses(InterfaceFilter::parse(filter), towards));
}

std::vector<ListenAddress> explain_listen_addresses(std::string_view filter,
                                                    const std::string& towards) {
  return listed(explain_addresses(InterfaceFilter::parse(filter), towards));
}

}  // namespace slipstream
