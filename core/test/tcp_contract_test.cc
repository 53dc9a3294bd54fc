#include "test/tcp_world.h"
#include "test/transport_contract.h"

namespace slipstream::test {
namespace {

std::string family_name(const testing::TestParamInfo<TransportFamily>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract,
                         testing::Values(tcp_family("IPv4", {}),
                                         tcp_family("IPv6", {.bind = {"::1"}}),
                                         tcp_family("FourStreams", {.num_streams = 4}),
                                         tcp_family("Tls", {.num_streams = 2, .tls = true})),
                         family_name);

}  // namespace
}  // namespace slipstream::test
