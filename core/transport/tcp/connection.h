#pragma once

#include <cstdint>
#include <memory>

#include "base/descriptor.h"
#include "transport/tcp/byte_channel.h"

namespace slipstream {

/// A connected socket whose handshake is done, the channel for its bytes, and the tag by which both
/// ends know it.
struct Connection {
  Descriptor socket;
  std::unique_ptr<ByteChannel> channel{};
  std::uint64_t tag = 0;
};

/// A stream of the link to a peer.
struct StreamId {
  std::uint32_t peer = 0, stream = 0;
  auto operator<=>(const StreamId&) const = default;
};

}  // namespace slipstream
