#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace slipstream {

using JobKey = std::array<std::byte, 32>;

/// The identity of a rank, and the secret by which it proves it to its peers.
struct Identity {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t epoch = 0;  ///< increased whenever the world is formed anew
  JobKey key{};
};

}  // namespace slipstream
