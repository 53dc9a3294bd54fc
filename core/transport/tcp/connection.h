#pragma once

#include <cstdint>

#include "base/descriptor.h"

namespace slipstream {

/// A connected socket whose handshake is done, and the tag by which both ends know it.
struct Connection {
  Descriptor socket;
  std::uint64_t tag = 0;
};

/// A stream of the link to a peer.
struct StreamId {
  std::uint32_t peer = 0, stream = 0;
  auto operator<=>(const StreamId&) const = default;
};

}  // namespace slipstream
