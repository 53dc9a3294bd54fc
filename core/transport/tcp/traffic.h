#pragma once

#include <cstdint>
#include <string>

namespace slipstream {

/// The behaviour of connections towards other traffic on the network.
struct Traffic {
  std::string congestion;              ///< congestion control, such as "cubic"; empty: the system's
  std::uint8_t dscp = 0;               ///< differentiated services code point, 0 to 63 (RFC 2474)
  std::uint64_t bytes_per_second = 0;  ///< most bytes that each connection sends; 0: no limit
};

/// Applies the options to a TCP socket. Throws Error(kConfig) if the system does not allow one.
void apply(const Traffic& traffic, int socket);

}  // namespace slipstream
