#include "test/transport_contract.h"
#include "transport/fake/fake_transport.h"

namespace slipstream::test {
namespace {

TransportFamily fake(std::string name, FakeOptions options) {
  const auto make = [options](std::span<Doorbell* const> doorbells) {
    const auto world_size = static_cast<std::uint32_t>(doorbells.size());
    const auto network = std::make_shared<FakeNetwork>(world_size, options);
    Wires wires{{}, network};
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      wires.transports.push_back(
          std::make_unique<FakeTransport>(*network, rank, doorbells[rank]->bell()));
    }
    return wires;
  };
  return {.name = std::move(name), .make = make};
}

INSTANTIATE_TEST_SUITE_P(Fake, TransportContract,
                         testing::Values(fake("CopiesLate", {}),
                                         fake("CopiesAtOnce", {.copies_payload = true}),
                                         fake("InParts", {.split_probability = 1}),
                                         fake("Slow", {.num_streams = 4,
                                                       .capacity_frames = 4,
                                                       .delay = 50us,
                                                       .jitter = 200us,
                                                       .split_probability = 0.5})),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace slipstream::test
