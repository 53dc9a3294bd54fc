#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nccl_net.h"

namespace slipstream::nccl {

constexpr std::size_t kMaxEndpoints = 4;

/// The handle of a listening comm, which NCCL copies to the sender. NCCL passes the same copy to
/// every call of connect(), so that it can keep the attempt to connect.
struct Handle {
  struct Endpoint {
    std::uint16_t family = 0;  ///< 4, 6, or 0 for none
    std::uint16_t port = 0;
    std::array<std::uint8_t, 16> address{};
  };

  std::uint64_t magic = 0;
  std::uint32_t epoch = 0;  ///< random, so that a port that is used again refuses old handles
  std::uint32_t rank = 0;   ///< of the receiver, for messages; kUnknownRank if it has none
  std::array<Endpoint, kMaxEndpoints> endpoints{};
  /// Number of the attempt to connect, in the process that connects; 0: there is none. A number
  /// from another process finds no attempt, since numbers are random.
  std::uint64_t attempt = 0;

  static constexpr std::uint64_t kMagic = 0x314c43434e50494c;  // "LIPNCCL1"
  static constexpr std::uint32_t kUnknownRank = ~std::uint32_t{0};
};
static_assert(sizeof(Handle) <= kHandleBytes);

/// Throws Error(kInternal) if a text is no address with a port.
void set_endpoints(Handle& handle, const std::vector<std::string>& endpoints);
/// The addresses with ports as texts. Throws Error(kUsage) if the handle is not one of ours.
std::vector<std::string> endpoints_of(const Handle& handle);

}  // namespace slipstream::nccl
