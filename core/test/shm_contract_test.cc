#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "test/transport_contract.h"
#include "transport/shm/shm_transport.h"

namespace slipstream::test {
namespace {

std::string family_name(const testing::TestParamInfo<TransportFamily>& info) {
  return info.param.name;
}

TransportFamily shm(std::string name, ShmOptions options) {
  const auto make = [options](std::span<Doorbell* const> doorbells) {
    Wires wires;
    for (std::uint32_t rank = 0; rank < doorbells.size(); ++rank) {
      Identity self{.rank = rank, .world_size = static_cast<std::uint32_t>(doorbells.size())};
      self.key.fill(std::byte{1});
      auto transport = std::make_unique<ShmTransport>(self, options, *doorbells[rank]);
      for (std::uint32_t peer = 0; peer < rank; ++peer) {
        const auto& lower = static_cast<const ShmTransport&>(*wires.transports[peer]);
        EXPECT_TRUE(transport->dial(peer, lower.name()));
      }
      wires.transports.push_back(std::move(transport));
    }
    return wires;
  };
  const auto max_payload = [options](std::uint32_t stream) {
    return stream == 0 ? options.eager_bytes : options.segment_bytes;
  };
  return {.name = std::move(name), .make = make, .max_payload = max_payload};
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportContract,
                         testing::Values(shm("Default", {}),
                                         shm("OneSlot", {.segment_bytes = 1000,
                                                         .num_slots = 1,
                                                         .eager_bytes = 64,
                                                         .num_control_slots = 2}),
                                         shm("LargestSegments",
                                             {.segment_bytes = kMaxSegmentBytes, .num_slots = 3})),
                         family_name);

}  // namespace
}  // namespace slipstream::test
