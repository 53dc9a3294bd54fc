#include "handle.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "base/address.h"
#include "slipstream/error.h"

namespace slipstream::nccl {
namespace {

Handle::Endpoint pack(const SocketAddress& address) {
  Handle::Endpoint endpoint;
  endpoint.port = address.port();
  if (address.family() == AF_INET) {
    endpoint.family = 4;
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(*address.raw());
    std::memcpy(endpoint.address.data(), &v4.sin_addr, sizeof v4.sin_addr);
  } else {
    endpoint.family = 6;
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*address.raw());
    std::memcpy(endpoint.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  }
  return endpoint;
}

std::string unpack(const Handle::Endpoint& endpoint) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (endpoint.family == 4) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.data(), sizeof v4.sin_addr);
    return SocketAddress(reinterpret_cast<const sockaddr&>(v4)).text();
  }
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(endpoint.port);
  std::memcpy(&v6.sin6_addr, endpoint.address.data(), sizeof v6.sin6_addr);
  return SocketAddress(reinterpret_cast<const sockaddr&>(v6)).text();
}

}  // namespace

void set_endpoints(Handle& handle, const std::vector<std::string>& endpoints) {
  SLIPSTREAM_ASSERT(endpoints.size() <= kMaxEndpoints, endpoints.size());
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const auto address = SocketAddress::parse(endpoints[i]);
    SLIPSTREAM_ASSERT(address && address->port() != 0, endpoints[i]);
    handle.endpoints[i] = pack(*address);
  }
}

std::vector<std::string> endpoints_of(const Handle& handle) {
  if (handle.magic != Handle::kMagic) {
    fail(ErrorKind::kUsage, "a rank sent a handle of another net plugin (it begins with 0x",
         std::hex, handle.magic, "); all ranks must use Slipstream's, so set NCCL_NET_PLUGIN and ",
         "NCCL_NET alike on all hosts");
  }
  std::vector<std::string> endpoints;
  for (const Handle::Endpoint& endpoint : handle.endpoints) {
    if (endpoint.family != 0) endpoints.push_back(unpack(endpoint));
  }
  return endpoints;
}

}  // namespace slipstream::nccl
