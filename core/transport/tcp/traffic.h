#pragma once

#include <cstdint>
#include <string>

namespace slipstream {

/// How connections behave towards others on the network.
struct Traffic {
  std::string congestion;              ///< congestion control, such as "cubic"; empty: the system's
  std::uint8_t dscp = 0;               ///< differentiated services code point, 0 to 63 (RFC 2474)
  std::uint64_t bytes_per_second = 0;  ///< that each connection sends at most; 0: no limit
};

/// Sets it for a TCP socket. Throws Error(kConfig) that says what the system does not allow.
void apply(const Traffic& traffic, int socket);

}  // namespace slipstream
