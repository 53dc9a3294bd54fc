#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "test/transport_world.h"
#include "transport/tcp/tcp_transport.h"

namespace slipstream::test {

/// The key of every job that these tests start.
inline JobKey job_key(std::uint8_t seed = 1) {
  JobKey key;
  key.fill(std::byte{seed});
  return key;
}

inline Identity identity(std::uint32_t rank, std::uint32_t world_size) {
  return {.rank = rank, .world_size = world_size, .epoch = 7, .key = job_key()};
}

/// Ranks connected by TCP over an address of this host.
inline TransportFamily tcp_family(std::string name, TcpOptions options) {
  const auto make = [options](std::span<Doorbell* const> doorbells) {
    const auto world_size = static_cast<std::uint32_t>(doorbells.size());
    Wires wires;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      auto transport = std::make_unique<TcpTransport>(identity(rank, world_size), options);
      for (std::uint32_t peer = 0; peer < rank; ++peer) {
        const auto& lower = static_cast<const TcpTransport&>(*wires.transports[peer]);
        transport->dial(peer, lower.endpoints());
      }
      wires.transports.push_back(std::move(transport));
    }
    return wires;
  };
  TransportFamily family;
  family.name = std::move(name);
  family.make = make;
  return family;
}

}  // namespace slipstream::test
